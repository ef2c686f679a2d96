"""`lierne` and `python -m lierne`: the command of C that the wheel has, in the place of this process."""
import os
import sys
import typing


def main() -> typing.NoReturn:
    command = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "lierne")
    if not os.access(command, os.X_OK):
        sys.exit(f"lierne: the package has no command ({command} is missing): `make install` or a wheel brings one")
    os.execv(command, ["lierne", *sys.argv[1:]])


if __name__ == "__main__":
    main()
