from lkgp.cli import main

main()
