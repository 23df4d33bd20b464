//! Class `rgw`: what radosgw keeps in omaps. First of all the index of a bucket, one object per shard; then buckets with
//! a lifecycle, buckets that wait for another number of shards, usage, and garbage; and checks of the objects with data.
//!
//! Formats: Ceph `src/cls/rgw/` at v16.2.15; behaviour measured on a real OSD.

mod bucket_log;
mod changes;
mod entry;
pub(crate) mod garbage;
mod header;
mod index_keys;
mod lifecycle;
mod list;
mod objects;
mod olh;
mod raw;
mod resharding;
mod usage;
mod versions;

use crate::method::{Method, read, write, write_only};

pub(crate) static METHODS: &[Method] = &[
    write("bucket_init_index", changes::init_index),
    write("bucket_set_tag_timeout", changes::set_tag_timeout),
    read("bucket_list", list::bucket_list),
    read("bucket_check_index", raw::check_index),
    write("bucket_rebuild_index", raw::rebuild_index),
    write("bucket_update_stats", changes::update_stats),
    write("bucket_prepare_op", changes::prepare_op),
    write("bucket_complete_op", changes::complete_op),
    write("bucket_link_olh", versions::link_olh),
    write("bucket_unlink_instance", versions::unlink_instance),
    read("bucket_read_olh_log", olh::read_log),
    write("bucket_trim_olh_log", olh::trim_log),
    write("bucket_clear_olh", olh::clear),
    write("obj_remove", objects::remove),
    write_only("obj_store_pg_ver", objects::store_pg_version),
    read("obj_check_attrs_prefix", objects::check_attrs_prefix),
    read("obj_check_mtime", objects::check_mtime),
    read("bi_get", raw::get),
    write("bi_put", raw::put),
    read("bi_list", raw::list),
    read("bi_log_list", bucket_log::list),
    write("bi_log_trim", bucket_log::trim),
    write("dir_suggest_changes", changes::suggest_changes),
    write("bi_log_resync", bucket_log::resync),
    write("bi_log_stop", bucket_log::stop),
    write("user_usage_log_add", usage::add),
    read("user_usage_log_read", usage::read),
    write("user_usage_log_trim", usage::trim),
    write_only("usage_log_clear", usage::clear),
    write("gc_set_entry", garbage::set_entry),
    write("gc_defer_entry", garbage::defer_entry),
    read("gc_list", garbage::list),
    write("gc_remove", garbage::remove),
    read("lc_get_entry", lifecycle::get_entry),
    write("lc_set_entry", lifecycle::set_entry),
    write("lc_rm_entry", lifecycle::remove_entry),
    read("lc_get_next_entry", lifecycle::get_next_entry),
    write("lc_put_head", lifecycle::put_head),
    read("lc_get_head", lifecycle::get_head),
    read("lc_list_entries", lifecycle::list_entries),
    write("reshard_add", resharding::add),
    read("reshard_list", resharding::list),
    read("reshard_get", resharding::get_entry),
    write("reshard_remove", resharding::remove),
    write("set_bucket_resharding", resharding::set),
    write("clear_bucket_resharding", resharding::clear),
    read("guard_bucket_resharding", resharding::guard),
    read("get_bucket_resharding", resharding::get),
];
