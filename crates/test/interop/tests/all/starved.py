# How long daemons of this cluster (its monitors, or those of a pattern) and this script have waited for a processor, in seconds: what the
# machine took of a pause. Of each process the thread counts that waited longest.
import glob
def waited(daemons='mon*'):
    found = {}
    for name in glob.glob(os.environ['DIR'] + '/run/%s.pid' % daemons) + ['']:
        try:
            pid = int(open(name).read()) if name else os.getpid()
            for task in glob.glob('/proc/%d/task/*/schedstat' % pid): found[pid, task] = int(open(task).read().split()[1]) / 1e9
        except (OSError, ValueError, IndexError): pass  # it ended meanwhile
    return found
def starved(before, daemons='mon*'):
    most = {}
    for (pid, task), seconds in waited(daemons).items(): most[pid] = max(most.get(pid, 0), seconds - before.get((pid, task), 0))
    return sum(most.values())
