//! The experiments that come with the bench: what each asks, and of which clusters.

/// A question that many ask of their cluster, with the comparisons that answer it.
#[derive(Debug)]
pub(super) struct Experiment {
    pub(super) name: &'static str,
    pub(super) asks: &'static str,
    /// What the figures do not show.
    pub(super) mind: &'static str,
    pub(super) plan: Plan,
}

/// How an experiment is carried out.
#[derive(Debug)]
pub(super) struct Plan {
    /// Pairs of clusters, one pair after the other.
    pub(super) pairs: &'static [(Variant, Variant)],
    /// What is measured unless `--cells` says otherwise.
    pub(super) cells: &'static [&'static str],
}

/// One cluster of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Variant {
    /// What it is called in the results.
    pub(super) label: &'static str,
    /// As behind the binary of `nacre:BINARY,WORD,..`.
    pub(super) words: &'static [&'static str],
    /// Has its write-ahead logs in the folder that `--log-dir` names.
    pub(super) has_log_device: bool,
}

const fn variant(label: &'static str, words: &'static [&'static str]) -> Variant {
    Variant { label, words, has_log_device: false }
}

const COPIES_3_OF_6: Variant = variant("copies-3", &["copies=3", "--osds=6", "--osd-size=2G"]);
const PGS_32: Variant = variant("pgs-32", &["pgs=32"]);
const MEMORY_1G: Variant = variant("memory-1g", &["--osd-memory-target=1G"]);
const SMALL_AND_LARGE: [&str; 4] =
    ["randread-4k-qd1", "randread-4k-qd32", "randwrite-4k-qd1", "randwrite-4k-qd32"];

/// All that there are.
pub(super) const EXPERIMENTS: [Experiment; 8] = [
    Experiment {
        name: "osds-per-device",
        asks: "Do two OSDs on a device do more than one? Both sides have as much memory and space in all.",
        mind: "all OSDs are on the device of --dir; on a machine whose processors are busy, more OSDs do less",
        plan: Plan {
            pairs: &[(
                variant("osds-3", &["--osds=3", "--osd-size=4G", "--osd-memory-target=1G"]),
                variant("osds-6", &["--osds=6", "--osd-size=2G", "--osd-memory-target=512M"]),
            )],
            cells: &SMALL_AND_LARGE,
        },
    },
    Experiment {
        name: "copies",
        asks: "What do two copies cost and save, compared with three?",
        mind: "two copies have one left when an OSD fails, and nobody to ask when that one is damaged",
        plan: Plan {
            pairs: &[(variant("copies-3", &["copies=3"]), variant("copies-2", &["copies=2"]))],
            cells: &["randread-4k-qd32", "randwrite-4k-qd1", "randwrite-4k-qd32", "write-4m-qd4"],
        },
    },
    Experiment {
        name: "ec",
        asks: "What do codes of 2+1 and 4+2 chunks cost and save, compared with three copies?",
        mind: "2+1 survives one failure, 4+2 and three copies two; they take 1.5, 1.5 and 3 times the data's space",
        plan: Plan {
            pairs: &[
                (COPIES_3_OF_6, variant("ec-2-1", &["ec=2+1", "--osds=6", "--osd-size=2G"])),
                (COPIES_3_OF_6, variant("ec-4-2", &["ec=4+2", "--osds=6", "--osd-size=2G"])),
            ],
            cells: &["randread-4k-qd16", "randwrite-4k-qd16", "read-4m-qd4", "write-4m-qd4"],
        },
    },
    Experiment {
        name: "memory",
        asks: "Do 256 MiB of memory target per OSD do as well as 1 GiB, and 2 GiB better?",
        mind: "it matters to data that does not fit: give --size-mib what clients work on, beyond the targets",
        plan: Plan {
            pairs: &[
                (MEMORY_1G, variant("memory-256m", &["--osd-memory-target=256M"])),
                (MEMORY_1G, variant("memory-2g", &["--osd-memory-target=2G"])),
            ],
            cells: &["randread-4k-qd32", "randwrite-4k-qd32", "mix70-4k-qd32"],
        },
    },
    Experiment {
        name: "log-device",
        asks: "Does the write-ahead log on a device of its own (--log-dir) make writes faster?",
        mind: "the logs of all OSDs share that device; when it fails, all of them fail",
        plan: Plan {
            pairs: &[(
                variant("log-beside-data", &[]),
                Variant { label: "log-device", words: &[], has_log_device: true },
            )],
            cells: &["write-4k-sync", "randwrite-4k-qd1", "randwrite-4k-qd32", "write-4m-qd4"],
        },
    },
    Experiment {
        name: "shards",
        asks: "What do two threads per OSD, each with a part of its store, give and cost beside one?",
        mind: "it pays where an OSD has more than one processor for itself; here three OSDs and the clients share them all",
        plan: Plan {
            pairs: &[(variant("shards-1", &["--shards=1"]), variant("shards-2", &["--shards=2"]))],
            cells: &SMALL_AND_LARGE,
        },
    },
    Experiment {
        name: "pgs",
        asks: "Do 128 or 512 PGs do better or worse than 32, on three OSDs?",
        mind: "more PGs spread data more evenly over many OSDs; that is not measured here",
        plan: Plan {
            pairs: &[(PGS_32, variant("pgs-128", &["pgs=128"])), (PGS_32, variant("pgs-512", &["pgs=512"]))],
            cells: &SMALL_AND_LARGE,
        },
    },
    Experiment {
        name: "messenger",
        asks: "What does encryption between clients and OSDs, and between OSDs, cost (secure, instead of crc)?",
        mind: "the network is the loopback's; a processor without AES instructions pays far more",
        plan: Plan {
            pairs: &[(variant("crc", &["messenger=crc"]), variant("secure", &["messenger=secure"]))],
            cells: &[
                "randread-4k-qd1",
                "randwrite-4k-qd1",
                "randwrite-4k-qd32",
                "read-4m-qd4",
                "write-4m-qd4",
            ],
        },
    },
];
