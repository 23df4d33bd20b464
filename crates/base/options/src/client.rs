//! Options of RADOS and RBD clients.

use crate::info::{Kind, OptionInfo, row};

pub(super) static TABLE: &[OptionInfo] = &[
    row("client_mount_timeout", Kind::Seconds, "300", "Seconds a client waits for the cluster")
        .services(&["mds_client"]),
    row("objecter_inflight_op_bytes", Kind::Size, "104857600", "Bytes a client may have in flight"),
    row("objecter_inflight_ops", Kind::Uint, "1024", "Requests a client may have in flight"),
    row("objecter_timeout", Kind::Float, "10", "Seconds after which a client asks for a newer map"),
    row(
        "rados_mon_op_timeout",
        Kind::Seconds,
        "0",
        "Seconds a client waits for a monitor's answer, 0 for ever",
    )
    .at_least("0"),
    row("rados_osd_op_timeout", Kind::Seconds, "0", "Seconds a client waits for an OSD's answer, 0 for ever")
        .at_least("0"),
    row("rbd_cache", Kind::Bool, "true", "Cache of a librbd client").services(&["rbd"]),
    row("rbd_cache_max_dirty", Kind::Size, "25165824", "Bytes in that cache not yet written")
        .services(&["rbd"]),
    row("rbd_cache_policy", Kind::Text, "writearound", "When writes leave that cache")
        .one_of(&["writearound", "writeback", "writethrough"])
        .services(&["rbd"])
        .at_start(),
    row("rbd_cache_size", Kind::Size, "33554432", "Bytes of that cache").services(&["rbd"]),
    row(
        "rbd_cache_writethrough_until_flush",
        Kind::Bool,
        "true",
        "Write through until the guest is seen to flush",
    )
    .services(&["rbd"]),
    row(
        "rbd_concurrent_management_ops",
        Kind::Uint,
        "10",
        "Requests in flight while an image is copied or removed",
    )
    .at_least("1")
    .services(&["rbd"]),
    row("rbd_default_data_pool", Kind::Text, "", "Pool of a new image's data").services(&["rbd"]).at_start(),
    row(
        "rbd_default_features",
        Kind::Text,
        "layering,exclusive-lock,object-map,fast-diff,deep-flatten",
        "Features of a new image",
    )
    .services(&["rbd"]),
    row("rbd_default_format", Kind::Uint, "2", "Format of a new image").services(&["rbd"]),
    row("rbd_default_order", Kind::Uint, "22", "Log2 of the object size of a new image").services(&["rbd"]),
    row("rbd_default_pool", Kind::Text, "rbd", "Pool when none is named").services(&["rbd"]).at_start(),
    row("rbd_default_stripe_count", Kind::Uint, "0", "Stripe width in objects of a new image")
        .services(&["rbd"]),
    row("rbd_default_stripe_unit", Kind::Size, "0", "Stripe unit in bytes of a new image").services(&["rbd"]),
    row("rbd_mirroring_delete_delay", Kind::Uint, "0", "Seconds before mirroring removes an image")
        .services(&["rbd"]),
    row("rbd_op_threads", Kind::Uint, "1", "Threads of a librbd client").services(&["rbd"]),
    row(
        "rbd_skip_partial_discard",
        Kind::Bool,
        "true",
        "Leave alone the parts of objects that a discard does not cover",
    )
    .services(&["rbd"]),
    row(
        "rbd_sparse_read_threshold_bytes",
        Kind::Size,
        "65536",
        "Reads from this size on ask only for what is there",
    )
    .services(&["rbd"]),
    row("rbd_validate_pool", Kind::Bool, "true", "Test a pool's snapshots before the first image")
        .services(&["rbd"]),
];
