"""Runs a command on a terminal of a width: terminal.py COLUMNS COMMAND... Prints what it wrote."""
import fcntl
import os
import pty
import struct
import sys
import termios

child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.execvp(sys.argv[2], sys.argv[2:])
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:  # Linux says so at the end
        break
    if not data:
        break
    sys.stdout.buffer.write(data.replace(b"\r\n", b"\n"))
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
