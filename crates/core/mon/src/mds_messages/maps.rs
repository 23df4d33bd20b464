//! Which map of file systems each subscriber is sent.
//!
//! `mdsmap` is its file system's to a server, and the default one's to a client; `mdsmap.ID` that file system's; `fsmap` is everything, and
//! `fsmap.user` the names. Caps that are limited to file systems (`allow r fsname=NAME`) show no others.

use crate::event::{Endpoint, SessionId};
use crate::mon::Mon;
use crate::session::Session;
use nacre_denc::Encode;
use nacre_maps::{FsMap, MdsMap};
use nacre_msg::{MFsMap, MFsMapUser, MMdsMap, Message};
use nacre_types::EntityKind;

/// The topics whose maps are told here.
pub(crate) const FSMAP: &str = "fsmap";
/// See [`FSMAP`].
pub(crate) const FSMAP_USER: &str = "fsmap.user";
/// See [`FSMAP`].
pub(crate) const MDSMAP: &str = "mdsmap";

/// True for `mdsmap` and `mdsmap.ID`.
pub(crate) fn is_mdsmap(what: &str) -> bool {
    what.strip_prefix(MDSMAP).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Mon {
    /// What a subscriber of `what` is to get, and the version that this is; none where there is nothing for it.
    pub(crate) fn fs_message(&self, session: SessionId, what: &str) -> Option<(u64, Message)> {
        let entry = self.sessions.get(&session)?;
        let fs = &self.state.fs;
        let epoch = fs.map().epoch;
        let caps = &entry.identity.caps;
        if what == FSMAP {
            let shown = shown_map(fs.map(), |name| caps.shows_file_system(name));
            return Some((epoch.into(), MFsMap { epoch, map: shown.to_bytes() }.into()));
        }
        if what == FSMAP_USER {
            let map = fs.user_map(|name| caps.shows_file_system(name));
            return Some((epoch.into(), MFsMapUser { epoch, map }.into()));
        }
        let map = self.mds_map_for(entry, what)?;
        let (epoch, fs_name) = (map.epoch, map.fs_name.clone());
        let message = MMdsMap { fsid: self.state.fsid, epoch, map: map.to_bytes(), fs_name };
        Some((epoch.into(), message.into()))
    }

    fn mds_map_for(&self, entry: &Session, what: &str) -> Option<MdsMap> {
        let fs = &self.state.fs;
        if entry.kind == EntityKind::MDS && entry.endpoint == Endpoint::Mon {
            return Some(fs.map_for_server(entry.identity.global_id));
        }
        let shown = |map: &MdsMap| entry.identity.caps.shows_file_system(&map.fs_name);
        match what.split_once('.') {
            Some((_, id)) => fs.map_for_client(id.parse().ok()?).filter(shown),
            None => {
                let default = fs.map_for_client(fs.map().legacy_client_fscid).filter(shown);
                // A client that mounts learns at once that there is none.
                Some(default.unwrap_or_else(|| fs.nobodys_map(fs.map().epoch)))
            }
        }
    }
}

/// The map without the file systems that are not to be seen.
pub(crate) fn shown_map(map: &FsMap, is_shown: impl Fn(&str) -> bool) -> FsMap {
    let mut shown = map.clone();
    shown.filesystems.retain(|fs| is_shown(&fs.mds_map.fs_name));
    let ids: Vec<i32> = shown.filesystems.iter().map(|fs| fs.fscid).collect();
    shown.mds_roles.retain(|_, fscid| *fscid == -1 || ids.contains(fscid));
    if !ids.contains(&shown.legacy_client_fscid) {
        shown.legacy_client_fscid = -1;
    }
    shown
}
