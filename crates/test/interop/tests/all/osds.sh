
    # OSDs as processes: `start ID`, `stop SIGNAL ID`; `up COUNT` and `clean` wait for what they say.
    start() { setsid $NACRE osd --dir $DIR --id $1 --listen 127.0.0.1 >> $DIR/log/osd.$1.log 2>&1 < /dev/null & }
    stop() { pid=$(cat $DIR/run/osd.$2.pid); kill -$1 $pid; gone $pid; }
    up() { until_true 30 "[ \$(ceph osd stat -f json | jq .num_up_osds) = $1 ]" || { ceph -s; return 1; }; }
    clean() {
        until_true 30 "ceph status -f json | jq -e '.pgmap.pgs_by_state | map(.state_name) == [\"active+clean\"]'" || { ceph -s; return 1; }
    }
