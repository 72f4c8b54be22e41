"""exit_in_session.py DATABASE OPTIONS: starts a session and ends by libc's exit() in the middle of it."""

import ctypes
import sys

from client import Client

client = Client(sys.argv[1])
client.start_session('cut short', None if sys.argv[2] == '-' else sys.argv[2])
client.run('select count(*) from num')
ctypes.CDLL(None).exit(7)
