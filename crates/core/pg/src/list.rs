//! Listing a PG's objects, page by page: `pgnls`, `pgls` and their filtered forms.
//!
//! Source: `PrimaryLogPG::do_pg_op` of ceph-osd v16.2.15 as seen on the wire. A client walks a pool by
//! following handles: the end of one PG is answered with the first place of the next one in the order of
//! bit-reversed hashes.

use crate::object::is_whiteout;
use crate::ops::{Change, LISTED_MAX, OpResult, Outcome};
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_msg::osd_op::code;
use nacre_msg::peer::Counters;
use nacre_msg::{OsdOp, SubOp};
use nacre_txn::ObjectView;
use nacre_types::{Errno, HObject, PgId, SnapId, SpgId};

/// Most objects looked at for one page: clones, other namespaces and filtered objects count too.
pub const SCANNED_MAX: usize = 8 * LISTED_MAX;
/// A locator's namespace that means all of them.
const ALL_NAMESPACES: &[u8] = b"\x01";
/// Namespace of the OSDs' own objects, never listed.
const INTERNAL_NAMESPACE: &[u8] = b".ceph-internal";
/// Begins the stored name of a user attribute in Ceph; filters name attributes so.
const ATTR_PREFIX: u8 = b'_';

/// What a listing sees.
#[derive(Clone, Copy)]
pub struct Listing<'a> {
    /// Objects as of the last submitted transaction.
    pub view: &'a dyn ObjectView,
    /// Collection that the PG's objects are in.
    pub collection: SpgId,
    /// PGs in the pool.
    pub pg_num: u32,
    /// Objects of the PG that are missing here, ascending: they exist all the same.
    pub missing: &'a [HObject],
}

/// Executes a message of listing operations.
#[must_use]
pub fn execute(listing: &Listing<'_>, op: &OsdOp) -> Outcome {
    let mut ops = vec![OpResult::default(); op.ops.len()];
    let mut result = 0;
    for (sub_op, out) in op.ops.iter().zip(&mut ops) {
        match list(listing, op, sub_op) {
            Ok((rval, data)) => (out.rval, out.out, result) = (rval, data, rval),
            Err(errno) => {
                (out.rval, result) = (errno.negated(), errno.negated());
                break;
            }
        }
    }
    Outcome {
        result,
        ops,
        user_version: 0,
        change: Change::None,
        watches: Vec::new(),
        notifies: Vec::new(),
        acks: Vec::new(),
        counters: Counters::default(),
    }
}

fn list(listing: &Listing<'_>, op: &OsdOp, sub_op: &SubOp) -> Result<(i32, BufList), Errno> {
    let mut r = Reader::new(sub_op.indata.to_bytes());
    let filter = match sub_op.code {
        code::PGLS | code::PGNLS => Filter::None,
        code::PGLS_FILTER | code::PGNLS_FILTER => Filter::read(&mut r)?,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let cursor: HObject = r.get().map_err(|_| Errno::EINVAL)?;
    let count = usize::try_from(sub_op.pg_list().count).unwrap_or(LISTED_MAX).min(LISTED_MAX);
    let page = listing.page(&op.locator.namespace, &filter, &cursor, count);
    let named = matches!(sub_op.code, code::PGNLS | code::PGNLS_FILTER);
    let pg = listing.collection.pg;
    let out = if named { page.to_pgnls(pg, listing.pg_num) } else { page.to_pgls() };
    Ok((i32::from(page.next.is_none()), out.into()))
}

/// Which objects a listing leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Filter {
    None,
    /// Keeps objects with this user attribute of this value; `None` names no user attribute.
    Attr {
        name: Option<ByteStr>,
        value: Bytes,
    },
}

impl Filter {
    fn read(r: &mut Reader) -> Result<Self, Errno> {
        let read = |r: &mut Reader| -> Result<(ByteStr, ByteStr, Bytes), DecodeError> {
            Ok((r.get()?, r.get()?, r.get()?))
        };
        let kind: ByteStr = r.clone().get().map_err(|_| Errno::EINVAL)?;
        if kind != "plain" {
            return Err(Errno::EINVAL);
        }
        let (_, stored, value) = read(r).map_err(|_| Errno::EINVAL)?;
        let name = stored.strip_prefix(&[ATTR_PREFIX]).map(ByteStr::from);
        Ok(Self::Attr { name, value })
    }

    fn keeps(&self, listing: &Listing<'_>, object: &HObject) -> bool {
        match self {
            Self::None => true,
            Self::Attr { name: None, .. } => false,
            Self::Attr { name: Some(name), value } => {
                listing.view.attr(&listing.collection, object, name).is_some_and(|found| found == *value)
            }
        }
    }
}

/// Some of a PG's heads in order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Page {
    objects: Vec<HObject>,
    /// First object not looked at; `None` at the PG's end.
    next: Option<HObject>,
}

impl Page {
    /// `pg_nls_response_t`.
    fn to_pgnls(&self, pg: PgId, pg_num: u32) -> Bytes {
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            match &self.next {
                Some(next) => w.put(next),
                None => w.put(&end_of(pg, pg_num)),
            }
            w.count(self.objects.len());
            for object in &self.objects {
                w.put(&object.namespace);
                w.put(&object.name);
                w.put(&object.key);
            }
        });
        w.finish()
    }

    /// `pg_ls_response_t`, which has a bare version byte.
    fn to_pgls(&self) -> Bytes {
        let mut w = Writer::new();
        w.u8(1);
        match &self.next {
            Some(next) => w.put(next),
            None => w.put(&HObject::max_value()),
        }
        w.count(self.objects.len());
        for object in &self.objects {
            w.put(&object.name);
            w.put(&object.key);
        }
        w.finish()
    }
}

impl Listing<'_> {
    fn page(&self, namespace: &[u8], filter: &Filter, cursor: &HObject, count: usize) -> Page {
        let mut page = Page { objects: Vec::new(), next: None };
        let mut from = cursor.clone();
        for _ in 0..SCANNED_MAX / LISTED_MAX {
            let (found, next) = self.scan(&from);
            for object in found {
                if page.objects.len() == count {
                    page.next = Some(object);
                    return page;
                }
                if self.shows(namespace, filter, &object) {
                    page.objects.push(object);
                }
            }
            match next {
                None => return page,
                Some(next) => from = next,
            }
        }
        page.next = Some(from);
        page
    }

    /// The next run of objects, here or missing here, and where it goes on.
    fn scan(&self, from: &HObject) -> (Vec<HObject>, Option<HObject>) {
        let mut found = self.view.list(&self.collection, from, LISTED_MAX + 1);
        let next = if found.len() > LISTED_MAX { found.pop() } else { None };
        let missing = self.missing.iter().skip_while(|object| *object < from);
        found.extend(missing.take_while(|object| next.as_ref().is_none_or(|next| *object < next)).cloned());
        found.sort_unstable();
        found.dedup();
        (found, next)
    }

    fn shows(&self, namespace: &[u8], filter: &Filter, object: &HObject) -> bool {
        let wanted = namespace == ALL_NAMESPACES || *object.namespace == *namespace;
        object.snap == SnapId::HEAD
            && wanted
            && *object.namespace != *INTERNAL_NAMESPACE
            && !self.view.meta(&self.collection, object).is_some_and(|record| is_whiteout(&record))
            && filter.keeps(self, object)
    }
}

/// The first place behind a PG in the order of objects: where the next PG begins.
#[must_use]
pub fn end_of(pg: PgId, pg_num: u32) -> HObject {
    let first = u64::from(pg.seed.reverse_bits());
    let end = (first | (0xffff_ffff >> split_bits(pg.seed, pg_num))) + 1;
    match u32::try_from(end) {
        Ok(end) => HObject { hash: end.reverse_bits(), pool: pg.pool, snap: SnapId::HEAD, ..HObject::MIN },
        Err(_) => HObject::max_value(),
    }
}

/// How many low bits of the hash all objects of the PG share, when the pool's number of PGs may lie
/// between two powers of two.
#[must_use]
pub fn split_bits(seed: u32, pg_num: u32) -> u32 {
    if pg_num <= 1 {
        return 0;
    }
    let bits = u32::BITS - pg_num.leading_zeros();
    let half = 1_u32 << (bits - 1);
    if seed % half < pg_num % half { bits } else { bits - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{ObjectContext, ObjectInfo};
    use crate::ops::testing::{Client, TestStore};
    use nacre_buf::ByteStr;
    use nacre_denc::{Encode, Reader};
    use nacre_msg::osd_op::PgList;
    use nacre_txn::Op;
    use nacre_types::ObjectLocator;
    use nacre_types::hash::stable_mod;

    const POOL: i64 = 3;

    fn object(namespace: &str, name: &str) -> HObject {
        HObject::head(POOL, namespace.into(), ByteStr::EMPTY, name.into())
    }

    fn record(whiteout: bool) -> Bytes {
        let info = ObjectInfo { whiteout, ..ObjectInfo::default() };
        ObjectContext { exists: true, info, ..ObjectContext::default() }.to_record()
    }

    /// A store of the objects of one PG.
    fn store(objects: &[HObject], pg: u32, pg_num: u32) -> TestStore {
        let mut store = TestStore::default();
        for object in objects.iter().filter(|object| object.pg(pg_num).seed == pg) {
            store.apply(&[Op::SetMeta { object: object.clone(), meta: record(false) }]);
        }
        store
    }

    fn message(namespace: &str, sub_op: SubOp) -> OsdOp {
        let locator = ObjectLocator { namespace: namespace.into(), ..ObjectLocator::in_pool(POOL) };
        OsdOp { locator, name: ByteStr::EMPTY, ..Client::default().message(vec![sub_op]) }
    }

    fn listing(store: &TestStore, pg: u32, pg_num: u32) -> Listing<'_> {
        Listing { view: store, collection: SpgId::replicated(PgId::new(POOL, pg)), pg_num, missing: &[] }
    }

    type Names = Vec<(ByteStr, ByteStr, ByteStr)>;

    fn pgnls(listing: &Listing<'_>, namespace: &str, count: u64, cursor: &HObject) -> (i32, HObject, Names) {
        let page = PgList { count, start_epoch: 0 };
        let op = SubOp::with_pg_list(code::PGNLS, page, cursor.to_bytes());
        let outcome = execute(listing, &message(namespace, op));
        let mut r = Reader::new(outcome.ops[0].out.to_bytes());
        let answer = r.envelope("response", 1, |_, r| {
            let handle = r.get()?;
            let count = r.count(12)?;
            let names = (0..count).map(|_| Ok((r.get()?, r.get()?, r.get()?)));
            Ok((handle, names.collect::<Result<Names, DecodeError>>()?))
        });
        let (handle, names) = answer.expect("a well-formed answer");
        (outcome.result, handle, names)
    }

    /// Walks a pool as a client does: from handle to handle, each in the PG that its hash names.
    fn walk(objects: &[HObject], pg_num: u32, count: u64) -> (Vec<u32>, Names) {
        let (mut pgs, mut names, mut cursor) = (Vec::new(), Vec::new(), HObject::MIN);
        while !cursor.max {
            let pg = stable_mod(cursor.hash, pg_num);
            if pgs.last() != Some(&pg) {
                pgs.push(pg);
            }
            let store = store(objects, pg, pg_num);
            let (result, next, found) = pgnls(&listing(&store, pg, pg_num), "\x01", count, &cursor);
            assert!(result == 1 || found.len() == usize::try_from(count).expect("small"));
            names.extend(found);
            assert!(next > cursor || next.max);
            cursor = next;
        }
        (pgs, names)
    }

    #[test]
    fn pgs_follow_each_other_as_on_the_wire() {
        assert_eq!(walk(&[], 8, 100).0, [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(walk(&[], 1, 100).0, [0]);
        // Between powers of two: PGs 4 and 5 are split off 0 and 1, the others are not yet.
        assert_eq!(walk(&[], 6, 100).0, [0, 4, 2, 1, 5, 3]);
    }

    #[test]
    fn ends_of_pgs() {
        let end = |seed, pg_num| end_of(PgId::new(POOL, seed), pg_num);
        assert_eq!((end(0, 8).hash, end(4, 8).hash, end(2, 6).hash), (4, 2, 1));
        assert_eq!((end(0, 8).pool, end(0, 8).snap), (POOL, SnapId::HEAD));
        assert_eq!(end(7, 8), HObject::max_value());
        assert_eq!(end(0, 1), HObject::max_value());
        assert_eq!(end(3, 6), HObject::max_value());
        assert_eq!([0, 1, 2, 3, 4, 5].map(|seed| split_bits(seed, 6)), [3, 3, 2, 2, 3, 3]);
        assert_eq!([0, 7].map(|seed| split_bits(seed, 8)), [3, 3]);
    }

    #[test]
    fn a_walk_finds_every_object_once_whatever_the_number_of_pgs() {
        let mut objects: Vec<HObject> = (0..200).map(|n| object("", &format!("o{n}"))).collect();
        objects.sort();
        let want: Names =
            objects.iter().map(|o| (o.namespace.clone(), o.name.clone(), o.key.clone())).collect();
        for pg_num in [1, 2, 3, 5, 6, 7, 8, 12, 100] {
            for count in [1, 7, 1000] {
                assert_eq!(walk(&objects, pg_num, count).1, want, "{pg_num} PGs, pages of {count}");
            }
        }
    }

    #[test]
    fn only_heads_of_the_namespace_are_listed() {
        let mut store = TestStore::default();
        for object in
            [object("", "a"), object("", "b"), object("n", "c"), object("", "a").with_snap(SnapId(4))]
        {
            let whiteout = object.name == "b";
            store.apply(&[Op::SetMeta { object, meta: record(whiteout) }]);
        }
        let mut missing = vec![object("n", "d"), object("", "a")];
        missing.sort();
        let listing = Listing { missing: &missing, ..listing(&store, 0, 1) };
        let names = |namespace: &str| {
            let (result, _, found) = pgnls(&listing, namespace, 10, &HObject::MIN);
            assert_eq!(result, 1);
            let mut names: Vec<String> = found.iter().map(|(_, name, _)| name.to_text()).collect();
            names.sort();
            names
        };
        assert_eq!(names(""), ["a"]);
        assert_eq!(names("n"), ["c", "d"]);
        assert_eq!(names("\x01"), ["a", "c", "d"]);
    }

    #[test]
    fn a_filter_keeps_objects_with_an_attribute() {
        let mut store = TestStore::default();
        for name in ["a", "b"] {
            let object = object("", name);
            store.apply(&[
                Op::SetMeta { object: object.clone(), meta: record(false) },
                Op::SetAttr { object, name: "tag".into(), value: name.to_owned().into() },
            ]);
        }
        let filtered = |kind: &str, attr: &str| {
            let mut w = Writer::new();
            [kind, attr, "b"].iter().for_each(|text| w.str(text));
            w.put(&HObject::MIN);
            let op = SubOp::with_pg_list(code::PGLS_FILTER, PgList { count: 10, start_epoch: 0 }, w.finish());
            let outcome = execute(&listing(&store, 0, 1), &message("", op));
            (outcome.result, outcome.ops[0].out.to_bytes())
        };
        let mut want = Writer::new();
        want.u8(1);
        want.put(&HObject::max_value());
        want.u32(1);
        want.str("b");
        want.str("");
        assert_eq!(filtered("plain", "_tag"), (1, want.finish()));
        assert_eq!(filtered("plain", "tag").1[..1], [1]);
        assert!(filtered("plain", "tag").1.len() < filtered("plain", "_tag").1.len());
        assert_eq!(filtered("cephfs.inode_tag", "_tag").0, Errno::EINVAL.negated());
    }

    #[test]
    fn malformed_and_unknown_listings_are_refused() {
        let store = TestStore::default();
        let refused = |op: SubOp| execute(&listing(&store, 0, 1), &message("", op)).result;
        assert_eq!(refused(SubOp::new(code::PGNLS)), Errno::EINVAL.negated());
        assert_eq!(refused(SubOp::new(code::SCRUBLS)), Errno::EOPNOTSUPP.negated());
        assert_eq!(refused(SubOp::new(code::READ)), Errno::EOPNOTSUPP.negated());
    }

    #[test]
    fn long_stretches_without_a_match_are_cut_into_pages() {
        let mut store = TestStore::default();
        for n in 0..SCANNED_MAX + 5 {
            store.apply(&[Op::SetMeta { object: object("n", &format!("o{n}")), meta: record(false) }]);
        }
        let listing = listing(&store, 0, 1);
        let (result, next, found) = pgnls(&listing, "", 10, &HObject::MIN);
        assert_eq!((result, found.len()), (0, 0));
        let (result, _, found) = pgnls(&listing, "", 10, &next);
        assert_eq!((result, found.len()), (1, 0));
    }
}
