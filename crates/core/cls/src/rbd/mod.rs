//! Class `rbd`: everything that librbd keeps about images beside their data.
//!
//! Payloads: Ceph `src/cls/rbd/cls_rbd.cc` and `cls_rbd_types.h` at v16.2.15, checked against captures. Omap
//! keys carry the names that Ceph gives them, so that `rados listomapvals` shows what people know.

mod bit_vector;
mod data;
mod groups;
mod header;
mod migration;
mod mirror;
mod names;
mod object_map;
mod parent;
mod snapshots;
mod trash;

use crate::method::{Method, read, write, write_only};
use mirror::{images, instances, peers, statuses};

pub(crate) static METHODS: &[Method] = &[
    // Names: rbd_id.*, rbd_directory, rbd_info, rbd_namespace.
    read("get_id", names::get_id),
    write("set_id", names::set_id),
    read("dir_get_id", names::dir_get_id),
    read("dir_get_name", names::dir_get_name),
    read("dir_list", names::dir_list),
    write("dir_add_image", names::dir_add_image),
    write("dir_remove_image", names::dir_remove_image),
    write("dir_rename_image", names::dir_rename_image),
    read("dir_state_assert", names::dir_state_assert),
    write("dir_state_set", names::dir_state_set),
    read("metadata_list", names::metadata_list),
    read("metadata_get", names::metadata_get),
    write("metadata_set", names::metadata_set),
    write("metadata_remove", names::metadata_remove),
    write("namespace_add", names::namespace_add),
    write("namespace_remove", names::namespace_remove),
    read("namespace_list", names::namespace_list),
    // The image header.
    write("create", header::create),
    read("get_all_features", header::get_all_features),
    read("get_features", header::get_features),
    write("set_features", header::set_features),
    read("get_size", header::get_size),
    write("set_size", header::set_size),
    read("get_object_prefix", header::get_object_prefix),
    read("get_data_pool", header::get_data_pool),
    read("get_flags", header::get_flags),
    write("set_flags", header::set_flags),
    read("op_features_get", header::op_features_get),
    write("op_features_set", header::op_features_set),
    read("get_stripe_unit_count", header::get_stripe_unit_count),
    write("set_stripe_unit_count", header::set_stripe_unit_count),
    read("get_create_timestamp", header::get_create_timestamp),
    read("get_access_timestamp", header::get_access_timestamp),
    read("get_modify_timestamp", header::get_modify_timestamp),
    write("set_access_timestamp", header::set_access_timestamp),
    write("set_modify_timestamp", header::set_modify_timestamp),
    // Snapshots.
    read("get_snapcontext", snapshots::get_snapcontext),
    read("snapshot_get", snapshots::snapshot_get),
    write("snapshot_add", snapshots::snapshot_add),
    write("snapshot_rename", snapshots::snapshot_rename),
    write("snapshot_remove", snapshots::snapshot_remove),
    write("snapshot_trash_add", snapshots::snapshot_trash_add),
    read("snapshot_get_limit", snapshots::snapshot_get_limit),
    write("snapshot_set_limit", snapshots::snapshot_set_limit),
    read("get_snapshot_name", snapshots::get_snapshot_name),
    read("get_snapshot_timestamp", snapshots::get_snapshot_timestamp),
    read("get_protection_status", snapshots::get_protection_status),
    write("set_protection_status", snapshots::set_protection_status),
    // Clones.
    read("parent_get", parent::parent_get),
    read("parent_overlap_get", parent::parent_overlap_get),
    write("parent_attach", parent::parent_attach),
    write("parent_detach", parent::parent_detach),
    read("get_parent", parent::get_parent),
    write("set_parent", parent::set_parent),
    write("remove_parent", parent::remove_parent),
    write("child_attach", parent::child_attach),
    write("child_detach", parent::child_detach),
    read("children_list", parent::children_list),
    write("add_child", parent::add_child),
    write("remove_child", parent::remove_child),
    read("get_children", parent::get_children),
    // Object maps and data objects.
    read("object_map_load", object_map::load),
    write("object_map_save", object_map::save).taking_data(),
    write("object_map_resize", object_map::resize),
    write("object_map_update", object_map::update),
    write("object_map_snap_add", object_map::snap_add),
    write("object_map_snap_remove", object_map::snap_remove),
    write("copyup", data::copyup).taking_data(),
    write("sparse_copyup", data::sparse_copyup).taking_data(),
    write("sparsify", data::sparsify),
    write("assert_snapc_seq", data::assert_snapc_seq),
    // Migration.
    read("migration_get", migration::get),
    write("migration_set", migration::set),
    write("migration_set_state", migration::set_state),
    write("migration_remove", migration::remove),
    // Groups.
    read("group_dir_list", groups::dir_list),
    write("group_dir_add", groups::dir_add),
    write("group_dir_remove", groups::dir_remove),
    write("group_dir_rename", groups::dir_rename),
    write("group_image_set", groups::image_set),
    write("group_image_remove", groups::image_remove),
    read("group_image_list", groups::image_list),
    write("image_group_add", groups::image_group_add),
    write("image_group_remove", groups::image_group_remove),
    read("image_group_get", groups::image_group_get),
    write("group_snap_set", groups::snap_set),
    write("group_snap_remove", groups::snap_remove),
    read("group_snap_get_by_id", groups::snap_get_by_id),
    read("group_snap_list", groups::snap_list),
    // Trash.
    write("trash_add", trash::add),
    write("trash_remove", trash::remove),
    read("trash_get", trash::get),
    read("trash_list", trash::list),
    write("trash_state_set", trash::state_set),
    // Mirroring metadata.
    read("mirror_mode_get", mirror::mode_get),
    write("mirror_mode_set", mirror::mode_set),
    read("mirror_uuid_get", mirror::uuid_get),
    write("mirror_uuid_set", mirror::uuid_set),
    read("mirror_peer_list", peers::list),
    write("mirror_peer_add", peers::add),
    write("mirror_peer_remove", peers::remove_peer),
    write("mirror_peer_ping", peers::ping),
    write("mirror_peer_set_client", peers::set_client),
    write("mirror_peer_set_cluster", peers::set_cluster),
    write("mirror_peer_set_direction", peers::set_direction),
    read("mirror_image_list", images::list),
    read("mirror_image_get", images::get_image),
    read("mirror_image_get_image_id", images::get_image_id),
    write("mirror_image_set", images::set_image),
    write("mirror_image_remove", images::remove_image),
    write("mirror_image_status_set", statuses::set_status),
    write("mirror_image_status_remove", statuses::remove_status),
    write("mirror_image_status_remove_down", statuses::remove_down),
    read("mirror_image_status_get", statuses::get_status),
    read("mirror_image_status_list", statuses::list),
    read("mirror_image_status_get_summary", statuses::summarize),
    read("mirror_image_instance_get", statuses::get_instance),
    read("mirror_image_instance_list", statuses::list_instances),
    read("mirror_instances_list", instances::list),
    write("mirror_instances_add", instances::add),
    write("mirror_instances_remove", instances::remove_instance),
    read("mirror_image_map_list", instances::list_map),
    write_only("mirror_image_map_update", instances::update_map),
    write_only("mirror_image_map_remove", instances::remove_map),
    write("mirror_image_snapshot_unlink_peer", mirror::snapshots::unlink_peer),
    write("mirror_image_snapshot_set_copy_progress", mirror::snapshots::set_copy_progress),
];
