//! What an administrator may store, however long a loop runs.

use super::{ADMIN, World};
use crate::config::{ConfigDb, ConfigError, VALUE_BYTES_MAX, VALUES_BYTES_MAX, VALUES_COUNT_MAX, Who};
use crate::config_key::{
    ConfigKeys, KEY_BYTES_MAX, KEYS_COUNT_MAX, STORE_BYTES_MAX, VALUE_BYTES_MAX as KEY_VALUE_MAX,
};
use nacre_buf::Bytes;
use nacre_types::Errno;

fn who(number: usize) -> Who {
    Who::parse(&format!("client.{number}")).expect("a section")
}

#[test]
fn values_of_options_are_bounded_in_number_and_bytes() {
    let mut db = ConfigDb::default();
    for number in 0..VALUES_COUNT_MAX {
        db.set(&who(number), "any", "x", true).expect("room");
    }
    assert!(matches!(db.set(&who(VALUES_COUNT_MAX), "any", "x", true), Err(ConfigError::Full)));
    db.set(&who(0), "any", "y", true).expect("what is there may change");

    let mut db = ConfigDb::default();
    let long = "x".repeat(VALUE_BYTES_MAX);
    assert!(matches!(db.set(&who(0), "any", &format!("{long}x"), true), Err(ConfigError::Full)));
    let kept = (0..).take_while(|number| db.set(&who(*number), "any", &long, true).is_ok()).count();
    assert!(kept > 50 && kept * VALUE_BYTES_MAX <= VALUES_BYTES_MAX, "{kept} values");
}

#[test]
fn config_keys_are_bounded_in_number_and_bytes() {
    let mut keys = ConfigKeys::default();
    let value = Bytes::from(vec![1; KEY_VALUE_MAX]);
    assert!(keys.has_room("k", KEY_VALUE_MAX) && !keys.has_room("k", KEY_VALUE_MAX + 1));
    assert!(!keys.has_room(&"k".repeat(KEY_BYTES_MAX + 1), 1));
    let mut kept = 0;
    while keys.has_room(&format!("key-{kept}"), KEY_VALUE_MAX) {
        keys.set(&format!("key-{kept}"), value.clone());
        kept += 1;
    }
    assert!(kept > 4000 && kept * KEY_VALUE_MAX <= STORE_BYTES_MAX, "{kept} values");
    assert!(keys.has_room("key-0", KEY_VALUE_MAX), "what is there may change");

    let mut keys = ConfigKeys::default();
    (0..KEYS_COUNT_MAX).for_each(|number| keys.set(&number.to_string(), Bytes::new()));
    assert!(!keys.has_room("one more", 0) && keys.has_room("0", 1));
}

#[test]
fn slots_of_osds_are_bounded() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let mut ask = |json: &str| world.ask(admin, json).expect("an answer").result;
    assert_eq!(ask(r#"{"prefix":"osd setmaxosd","newmax":10001}"#), Errno::ERANGE.negated());
    assert_eq!(ask(r#"{"prefix":"osd setmaxosd","newmax":10000}"#), 0);
}
