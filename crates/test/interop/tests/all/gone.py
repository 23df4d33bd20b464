# Whether a process has ended. One that the script started is there until it is waited for.
def is_gone(process):
    try: return open('/proc/%d/stat' % process).read().rsplit(')', 1)[1].split()[0] == 'Z'
    except (FileNotFoundError, ProcessLookupError): return True
