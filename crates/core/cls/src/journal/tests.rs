use crate::testing::TestObject;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, Encode, Writer};
use nacre_types::Errno;

fn journal() -> TestObject {
    let mut object = TestObject::default();
    object.call("journal", "create", (24_u8, (4_u8, -1_i64)).to_bytes()).expect("created");
    object
}

fn register(object: &mut TestObject, id: &str) {
    let input = (ByteStr::from(id), Bytes::new()).to_bytes();
    object.call("journal", "client_register", input).expect("registered");
}

fn commit(object: &mut TestObject, id: &str, tag_tid: u64) {
    let mut w = Writer::new();
    w.str(id);
    w.envelope(1, 1, |w| {
        w.count(1);
        w.envelope(1, 1, |w| [0, tag_tid, 0].iter().for_each(|number| w.u64(*number)));
    });
    object.call("journal", "client_commit", w.finish()).expect("committed");
}

fn create_tag(object: &mut TestObject, tid: u64, class: u64) -> Result<Bytes, Errno> {
    object.call("journal", "tag_create", ((tid, class), Bytes::new()).to_bytes())
}

fn tag_exists(object: &mut TestObject, tid: u64) -> bool {
    object.call("journal", "get_tag", tid.to_bytes()).is_ok()
}

#[test]
fn a_tag_goes_when_its_class_has_a_newer_one_that_all_have_reached() {
    let mut object = journal();
    register(&mut object, "");
    create_tag(&mut object, 0, u64::MAX).expect("a new class");
    create_tag(&mut object, 1, 0).expect("its second tag");
    create_tag(&mut object, 2, u64::MAX).expect("another class");
    assert!(tag_exists(&mut object, 0), "a client that has committed nothing needs every tag");
    commit(&mut object, "", 2);
    create_tag(&mut object, 3, 1).expect("created");
    let there: Vec<bool> = (0..4).map(|tid| tag_exists(&mut object, tid)).collect();
    assert_eq!(there, [false, true, true, true], "the last tag of each class stays");
    assert_eq!(create_tag(&mut object, 3, 1), Err(Errno::EEXIST));
    assert_eq!(create_tag(&mut object, 9, 1), Err(Errno::ESTALE));
    assert_eq!(create_tag(&mut object, 4, 7), Err(Errno::EINVAL));
}

#[test]
fn the_nameless_client_is_listed_first() {
    let mut object = journal();
    register(&mut object, "mirror");
    register(&mut object, "");
    let mut list = |after: &str, count_max: u64| {
        let input = (ByteStr::from(after), count_max).to_bytes();
        let output = object.call("journal", "client_list", input).expect("a list");
        u32::from_bytes(output.slice(..4)).expect("a count")
    };
    assert_eq!((list("", 10), list("", 1), list("mirror", 10), list("a", 10)), (2, 1, 0, 1));
}

#[test]
fn a_new_client_begins_where_the_slowest_is() {
    let mut object = journal();
    register(&mut object, "a");
    register(&mut object, "b");
    commit(&mut object, "a", 7);
    commit(&mut object, "b", 5);
    register(&mut object, "c");
    let client = |object: &mut TestObject, id: &str| {
        object.call("journal", "get_client", ByteStr::from(id).to_bytes()).expect("a client")
    };
    let (slowest, new) = (client(&mut object, "b"), client(&mut object, "c"));
    let position = slowest.len() - 1 - 30..slowest.len() - 1;
    assert_eq!(slowest[position.clone()], new[position]);
}

#[test]
fn appends_stop_once_the_object_has_its_size() {
    let mut object = TestObject::default();
    let append = |data: &'static [u8]| (6_u64, Bytes::from_static(data)).to_bytes();
    object.call("journal", "append", append(b"abcd")).expect("appended");
    object.call("journal", "append", append(b"efgh")).expect("the last one may go over");
    assert_eq!(object.call("journal", "append", append(b"i")), Err(Errno::EOVERFLOW));
    assert_eq!(object.data(), b"abcdefgh");
}
