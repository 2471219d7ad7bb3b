"""Text files: their compression and their encoding, which are kept when a file is written again."""

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
from pathlib import Path

# By the bytes with which a file begins; the longer ones first, because that of UTF-32 begins with that of UTF-16.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32-LE",
    codecs.BOM_UTF32_BE: "UTF-32-BE",
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF16_LE: "UTF-16-LE",
    codecs.BOM_UTF16_BE: "UTF-16-BE",
}


def read_bytes(path: Path) -> bytes:
    """The content of a file, decompressed if the ending of its name says that it is compressed."""
    data, ending = path.read_bytes(), path.suffix.lower()
    if ending == ".gz":
        return gzip.decompress(data)
    if ending == ".bz2":
        return bz2.decompress(data)
    if ending == ".xz":
        try:
            return lzma.decompress(data)
        except lzma.LZMAError as error:
            raise ValueError(str(error)) from None
    if ending == ".zip":
        return _unzip(data)
    return data


def _unzip(data: bytes) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if len(names) != 1:
                raise ValueError(f"the archive contains {len(names)} files, not one")
            return archive.read(names[0])
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from None


def write_bytes(data: bytes, path: Path) -> None:
    """Write a file, compressed if the ending of its name says so."""
    ending = path.suffix.lower()
    if ending == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(path.stem, data)
        return
    if ending == ".gz":
        data = gzip.compress(data)
    elif ending == ".bz2":
        data = bz2.compress(data)
    elif ending == ".xz":
        data = lzma.compress(data)
    path.write_bytes(data)


def decode(data: bytes) -> tuple[str, str, bytes]:
    """The text, the name of its encoding, and the byte-order mark that it began with; all bytes can be encoded again.

    The encoding is that of the byte-order mark, otherwise UTF-8, or else Windows-1252, in which Excel writes "CSV".
    """
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding), encoding, mark
    if b"\0" in data:
        raise ValueError("it contains zero bytes, as UTF-16 has; save it as UTF-8")
    for encoding in ("UTF-8", "Windows-1252"):
        try:
            return data.decode(encoding), encoding, b""
        except UnicodeDecodeError:
            continue
    raise ValueError("its encoding is not known; save it as UTF-8")
