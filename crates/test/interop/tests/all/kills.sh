
        # `wait COMMAND`, as `up COUNT` (OSDs) and `clean` (all PGs); `kill9 ID`, `line ID` and `start LINE` of OSDs.
        wait() { until_true 25 "$*" || { ceph -s; return 1; }; }
        up() { [ $(ceph osd stat -f json | jq .num_up_osds) = $1 ]; }
        clean() {
            local said
            said=$(ceph pg stat) && grep -qE '^[0-9]+ pgs: [0-9]+ active\+clean;' <<< "$said" && ! grep -qE 'degraded|misplaced' <<< "$said"
        }
        kill9() { kill -9 $(cat $DIR/run/osd.$1.pid); }
        line() { tr '\0' ' ' < /proc/$(cat $DIR/run/osd.$1.pid)/cmdline; }
        start() { setsid $1 >> $DIR/log/again.log 2>&1 < /dev/null & }
