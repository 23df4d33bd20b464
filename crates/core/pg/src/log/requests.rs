//! [`Requests`]: which entry of a log a request made.

use nacre_types::{EntityName, Eversion, ReqId};
use std::collections::{BTreeMap, VecDeque};

/// Newest entries by request, client by client.
///
/// A client numbers its requests upwards, what is asked about mostly is a new one, and a log is trimmed of its oldest entries: all
/// of that happens at the ends of what one client made. A tree of all requests cost 1.2 % of the time of small writes.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Number of the request and version of its entry, ascending by number.
    by_client: BTreeMap<Client, VecDeque<(u64, Eversion)>>,
}

/// The client instance and its incarnation.
type Client = (EntityName, i32);

fn client(reqid: &ReqId) -> Client {
    (reqid.name, reqid.incarnation)
}

/// Where the request with this number is, or would have to be.
fn place(made: &VecDeque<(u64, Eversion)>, tid: u64) -> Result<usize, usize> {
    match made.back() {
        Some((newest, _)) if *newest >= tid => made.binary_search_by_key(&tid, |(tid, _)| *tid),
        _ => Err(made.len()),
    }
}

impl Requests {
    pub(super) fn get(&self, reqid: &ReqId) -> Option<Eversion> {
        let made = self.by_client.get(&client(reqid))?;
        made.get(place(made, reqid.tid).ok()?).map(|(_, version)| *version)
    }

    /// The request made an entry, which is newer than those it may have made before.
    pub(super) fn insert(&mut self, reqid: &ReqId, version: Eversion) {
        let made = self.by_client.entry(client(reqid)).or_default();
        match place(made, reqid.tid) {
            Ok(at) => {
                if let Some((_, newest)) = made.get_mut(at) {
                    *newest = version;
                }
            }
            Err(at) => made.insert(at, (reqid.tid, version)),
        }
    }

    /// An entry leaves the log: its request is not found any more, unless it made a newer one.
    pub(super) fn forget(&mut self, reqid: &ReqId, version: Eversion) {
        let Some(made) = self.by_client.get_mut(&client(reqid)) else { return };
        let leaving = (reqid.tid, version);
        if made.front() == Some(&leaving) {
            made.pop_front();
        } else if let Ok(at) = place(made, reqid.tid)
            && made.get(at) == Some(&leaving)
        {
            made.remove(at);
        }
        if made.is_empty() {
            self.by_client.remove(&client(reqid));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ReqId, Eversion)> + '_ {
        self.by_client.iter().flat_map(|(&(name, incarnation), made)| {
            made.iter().map(move |&(tid, version)| (ReqId { name, tid, incarnation }, version))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as a map by request, in whatever order requests come and entries go.
    #[test]
    fn is_a_map_by_request() {
        let (mut requests, mut model, mut seed) = (Requests::default(), BTreeMap::new(), 11_u32);
        let mut next = |bound: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u64::from((seed >> 16) % bound)
        };
        let mut entries = VecDeque::new();
        for version in 1..5000 {
            let at = Eversion::new(1, version);
            // Mostly upwards, at times far back.
            let tid = if next(10) == 0 { next(4000) } else { version };
            let name = EntityName::client(next(3));
            let reqid = ReqId { name, tid, incarnation: i32::from(next(20) == 0) };
            assert_eq!(requests.get(&reqid), model.get(&reqid).copied());
            requests.insert(&reqid, at);
            model.insert(reqid, at);
            entries.push_back((reqid, at));
            if entries.len() > 300 || next(3) == 0 {
                // The oldest are trimmed, the newest rewound.
                let gone = if next(4) == 0 { entries.pop_back() } else { entries.pop_front() };
                let (reqid, version) = gone.expect("one was just added");
                requests.forget(&reqid, version);
                if model.get(&reqid) == Some(&version) {
                    model.remove(&reqid);
                }
            }
            if version % 100 == 0 {
                assert!(requests.iter().collect::<BTreeMap<_, _>>() == model);
            }
        }
        for (reqid, version) in entries {
            requests.forget(&reqid, version);
        }
        assert!(requests.by_client.is_empty(), "clients whose entries are gone are forgotten");
    }
}
