//! Caps as readable cases: text, what is asked, what is said.

use super::*;
use crate::testing::below;

type Applications = BTreeMap<String, BTreeMap<String, String>>;

fn applications(text: &str) -> Applications {
    let mut all = Applications::new();
    for item in text.split_whitespace() {
        let (application, pair) = item.split_once(':').unwrap_or((item, ""));
        let metadata = all.entry(application.to_owned()).or_default();
        if let Some((key, value)) = pair.split_once('=') {
            metadata.insert(key.to_owned(), value.to_owned());
        }
    }
    all
}

/// `pool/namespace/object rights [class.method:rights[!]]`; `!` marks a class that is not listed.
fn ask(caps: &str, question: &str, tags: &str) -> bool {
    let caps = OsdCaps::parse(caps).expect("valid caps");
    let mut words = question.split_whitespace();
    let mut place = words.next().expect("a place").split('/');
    let mut part = || place.next().unwrap_or("");
    let (pool, namespace, object) = (part(), part(), part());
    let (mut read, mut write) = (false, false);
    let mut classes = Vec::new();
    for word in words {
        match word.split_once(':') {
            None => (read, write) = (word.contains('r'), word.contains('w')),
            Some((name, rights)) => {
                let (class, method) = name.split_once('.').expect("class.method");
                let (read, write) = (rights.contains('r'), rights.contains('w'));
                classes.push(ClassCall { class, method, read, write, listed: !rights.contains('!') });
            }
        }
    }
    caps.allows(&OsdRequest {
        pool,
        namespace: namespace.as_bytes(),
        applications: &applications(tags),
        object: object.as_bytes(),
        read,
        write,
        classes: &classes,
    })
}

#[test]
fn rights_and_places() {
    let cases = [
        ("allow *", "p/n/o rw a.b:rw!", true),
        ("allow all", "p//o rw", true),
        ("allow r", "p//o r", true),
        ("allow r", "p//o rw", false),
        ("allow rw", "p//o rw", true),
        ("allow w", "p//o r", false),
        ("allow rwx", "p//o rw lock.lock:w", true),
        ("allow rwx", "p//o rw custom.x:w!", false),
        ("allow rw", "p//o r lock.lock:w", false),
        ("allow class-read", "p//o a.b:r", true),
        ("allow class-read", "p//o a.b:rw", false),
        ("allow r class-read class-write", "p//o r a.b:rw", true),
        ("allow rwx pool=p", "p/n/o rw", true),
        ("allow rwx pool=p", "q/n/o r", false),
        ("allow rwx pool p", "p//o rw", true),
        ("allow pool p rwx", "p//o rw", true),
        ("allow rw pool=\"a b\"", "a_b//o r", false),
        ("allow rw pool p namespace n object_prefix ob", "p/n/object rw", true),
        ("allow rw pool p namespace n object_prefix ob", "p/n/x rw", false),
        ("allow rw pool p namespace n object_prefix ob", "p/m/ob rw", false),
        ("allow rw namespace=n*", "p/nine/o rw", true),
        ("allow rw namespace=n*", "p/m/o rw", false),
        ("allow rw namespace=''", "p//o rw", true),
        ("allow rw namespace=''", "p/n/o rw", false),
        ("allow rw namespace ''*", "p/n/o rw", true),
        ("allow rw auid 17", "p/n/o rw", true),
        ("allow r, allow w", "p//o r", true),
        ("allow r, allow w", "p//o rw", false),
        ("allow r; allow rw pool=p", "p//o rw", true),
        ("  allow r ;allow w pool=p\t", "p//o w", true),
        ("allow rw network 10.0.0.0/8", "p//o r", false),
    ];
    for (caps, question, want) in cases {
        assert_eq!(ask(caps, question, ""), want, "{caps}: {question}");
    }
}

#[test]
fn classes() {
    let cases = [
        ("allow class foo", "p//o foo.a:rw!", true),
        ("allow class foo a", "p//o foo.a:rw!", true),
        ("allow class foo a", "p//o foo.b:r", false),
        ("allow class 'foo' 'a' pool=p", "p//o foo.a:r", true),
        ("allow class foo a", "p//o r foo.a:r", false),
        ("allow r class-read", "p//o r foo.a:r foo.b:r", true),
        // One grant per class: each opens its own, together they open the message.
        ("allow class foo, allow class bar", "p//o foo.a:r! bar.b:w!", true),
        ("allow class foo, allow class bar", "p//o foo.a:r! baz.b:w!", false),
        ("allow r, allow class foo", "p//o r foo.a:r!", false),
    ];
    for (caps, question, want) in cases {
        assert_eq!(ask(caps, question, ""), want, "{caps}: {question}");
    }
}

#[test]
fn tags() {
    let cases = [
        ("allow rw tag cephfs data=a", "cephfs:data=a", true),
        ("allow rw tag cephfs data=a", "cephfs:data=b", false),
        ("allow rw tag cephfs data=a", "rbd:data=a", false),
        ("allow rw tag cephfs data = a", "cephfs:data=a", true),
        ("allow rw tag cephfs *=*", "cephfs", true),
        ("allow rw tag cephfs *=*", "rbd", false),
        ("allow rw tag cephfs *=a", "cephfs:metadata=a", true),
        ("allow rw tag cephfs *=a", "cephfs:metadata=b", false),
        ("allow rw tag cephfs data=*", "cephfs:data=anything", true),
        ("allow rw tag cephfs data=*", "cephfs:metadata=anything", false),
        ("allow rw namespace='' tag cephfs data=a", "cephfs:data=a", true),
        ("allow rw namespace=n tag cephfs data=a", "cephfs:data=a", false),
    ];
    for (caps, tags, want) in cases {
        assert_eq!(ask(caps, "p//o rw", tags), want, "{caps}: {tags}");
    }
}

#[test]
fn profiles() {
    let cases = [
        ("profile rbd", "p/n/rbd_data.1 rw rbd.x:rw", true),
        ("profile rbd pool=p", "p//rbd_data.1 rw rbd.x:rw", true),
        ("profile rbd pool=p", "q//rbd_data.1 r", false),
        ("profile rbd pool=p", "q//rbd_info r", true),
        ("profile rbd pool=p", "q//rbd_children rbd.get_children:r", true),
        ("profile rbd pool=p", "q//rbd_children rbd.add_child:rw", false),
        ("profile rbd pool=p namespace=n", "p/n/x rw", true),
        ("profile rbd pool=p namespace=n", "p//x rw", false),
        ("profile rbd pool=p namespace=n", "p//rbd_info rbd.metadata_list:r", true),
        ("profile rbd-read-only pool=p", "p//rbd_header.1 r rbd.get_size:r", true),
        ("profile rbd-read-only pool=p", "p//rbd_header.1 rw", false),
        ("profile rbd-read-only pool=p", "p//rbd_header.1 rbd.child_attach:rw", true),
        ("profile rbd-read-only pool=p", "p//x rbd.child_attach:rw", false),
        ("profile=read-only", "p//x r", true),
        ("profile read-write pool q", "q//x rw", true),
        ("profile rbd-read-only, profile rbd pool=q", "q//x rw", true),
        ("profile osd", "p//x r", false),
    ];
    for (caps, question, want) in cases {
        assert_eq!(ask(caps, question, ""), want, "{caps}: {question}");
    }
}

#[test]
fn refusals_tell_where_reading_stopped() {
    let cases = [
        ("", ""),
        ("allow", "allow"),
        ("allow rw pool", "pool"),
        ("allow wr", "r"),
        ("allow r,", ","),
        ("allow r, deny w", ", deny w"),
        ("alow r", "alow r"),
        ("allow rw pool='p", "pool='p"),
        ("allow rw namespace=*", "namespace=*"),
        ("allow rw tag cephfs data", "tag cephfs data"),
        ("allow rw pool=p tag cephfs data=x", "tag cephfs data=x"),
        ("profile", "profile"),
        ("allow r network", "network"),
    ];
    for (text, rest) in cases {
        let want = CapsError::Syntax { service: "osd", rest: rest.to_owned(), text: text.to_owned() };
        assert_eq!(OsdCaps::parse(text), Err(want), "{text}");
    }
    let long = format!("allow r pool={}", "x".repeat(CAPS_BYTES_MAX));
    assert!(matches!(OsdCaps::parse(&long), Err(CapsError::TooLong { .. })));
}

#[test]
fn networks_hold_where_the_client_is() {
    let caps =
        OsdCaps::parse("allow r network 10.0.0.0/8, allow * network 192.0.2.0/24").expect("valid caps");
    let at = |addr: &str| caps.clone().at(Some(addr.parse().expect("a valid address")));
    assert!(at("192.0.2.9").allows_everything());
    assert!(!at("10.1.1.1").allows_everything() && at("10.1.1.1") != OsdCaps::none());
    assert_eq!(at("198.51.100.1"), OsdCaps::none());
    assert_eq!(caps.clone().at(None), OsdCaps::none());
    assert!(!caps.allows_everything());
}

#[test]
fn random_text_never_panics() {
    let words = [
        "allow",
        "r",
        "rwx",
        "*",
        " ",
        " ",
        ",",
        ";",
        "pool",
        "=",
        "'",
        "\"",
        "namespace",
        "tag",
        "class",
        "profile",
        "rbd",
        "object_prefix",
        "network",
        "10.0.0.0/8",
        "é",
        "class-read",
        "auid",
        "-1",
        "with",
        "command",
        "prefix",
        "regex",
        "[",
        "(",
        "service",
        "module",
    ];
    let mut entropy = nacre_types::entropy::SeededEntropy(11);
    for _ in 0..20_000 {
        let count = below(&mut entropy, 12);
        let text: String = (0..count)
            .map(|_| *words.get(below(&mut entropy, words.len())).expect("below the count"))
            .collect();
        drop(OsdCaps::parse(&text));
        drop(crate::caps::validate("mon", &text));
        drop(crate::caps::validate("mgr", &text));
    }
}
