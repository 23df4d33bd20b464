//! Keys of encrypted OSDs: `osd new` keeps them, `osd destroy` and `osd purge` forget them.

use super::Bench;
use crate::command::Output;
use nacre_auth::{CryptoKey, MonCaps, Rwx};
use nacre_types::dmcrypt::KEY_CHARS_MAX;
use nacre_types::{AuthName, EntityKind, Errno, UTime};
use std::collections::BTreeMap;

const UUID: &str = "0e1c2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4f";
const DMCRYPT: &str = "c2VzYW1lIHNlc2FtZSBzZXNhbWUgc2VzYW1l";

fn key(byte: u8) -> String {
    CryptoKey::from_parts([byte; 16], UTime::ZERO).to_text()
}

fn new(bench: &mut Bench, input: &str) -> Output {
    bench.run(&format!(r#"{{"prefix":"osd new","uuid":"{UUID}"}}"#), input.as_bytes())
}

fn secrets(lockbox: u8, dmcrypt: &str) -> String {
    let (own, lockbox) = (key(1), key(lockbox));
    format!(r#"{{"cephx_secret":"{own}","cephx_lockbox_secret":"{lockbox}","dmcrypt_key":"{dmcrypt}"}}"#)
}

fn lockbox() -> AuthName {
    AuthName::new(EntityKind::CLIENT, format!("osd-lockbox.{UUID}"))
}

/// The keys of the store, and whether the lockbox's entity is there.
fn kept(bench: &Bench) -> (Vec<String>, bool) {
    let keys = bench.state.config_keys.iter_prefix("dm-crypt/osd/").map(|(key, _)| key.clone());
    (keys.collect(), bench.state.auth.keys().entity(&lockbox()).is_some())
}

#[test]
fn a_new_osd_s_key_is_kept_for_its_lockbox_alone_and_asking_again_changes_nothing() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        let output = new(&mut bench, &secrets(2, DMCRYPT));
        assert_eq!((output.code, output.data.as_ref()), (0, &b"3\n"[..]), "{}", output.text);
    }
    let name = format!("dm-crypt/osd/{UUID}/luks");
    assert_eq!(kept(&bench), (vec![name.clone()], true));
    assert_eq!(bench.state.config_keys.value(&name).map(AsRef::as_ref), Some(DMCRYPT.as_bytes()));
    let entity = bench.state.auth.keys().entity(&lockbox()).expect("an entity");
    assert_eq!(entity.key.secret(), &[2; 16]);
    let caps = MonCaps::parse(entity.caps.get("mon").expect("caps"), &lockbox()).expect("well-formed");
    let may = |command: &str, key: &str| {
        let args: BTreeMap<String, String> = [("key".to_owned(), key.to_owned())].into();
        caps.allows_command("config-key", command, &args, Rwx::R)
    };
    assert!(may("config-key get", &name));
    assert!(!may("config-key get", "dm-crypt/osd/other/luks") && !may("config-key rm", &name));
}

#[test]
fn secrets_that_do_not_fit_are_refused_and_leave_nothing() {
    let mut bench = Bench::new();
    let (own, box_key) = (key(1), key(2));
    for input in [
        format!(r#"{{"cephx_secret":"{own}","dmcrypt_key":"{DMCRYPT}"}}"#),
        format!(r#"{{"cephx_secret":"{own}","cephx_lockbox_secret":"{box_key}"}}"#),
        format!(r#"{{"cephx_lockbox_secret":"{box_key}","dmcrypt_key":"{DMCRYPT}"}}"#),
        format!(r#"{{"cephx_secret":"{own}","cephx_lockbox_secret":"zz","dmcrypt_key":"{DMCRYPT}"}}"#),
        r#"{"cephx_secret":""}"#.to_owned(),
        format!(r#"{{"cephx_secret":"{own}","cephx_lockbox_secret":"","dmcrypt_key":""}}"#),
        format!(r#"{{"cephx_secret":"{own}","cephx_lockbox_secret":null,"dmcrypt_key":7}}"#),
    ] {
        assert_eq!(new(&mut bench, &input).code, Errno::EINVAL.negated(), "{input}");
    }
    assert!(!bench.state.osd.upcoming().exists(3));
    assert_eq!(kept(&bench), (Vec::new(), false));
    assert_eq!(new(&mut bench, &secrets(2, DMCRYPT)).code, 0);
    for input in [secrets(3, DMCRYPT), secrets(2, &DMCRYPT.to_lowercase())] {
        assert_eq!(new(&mut bench, &input).code, Errno::EEXIST.negated(), "{input}");
    }
}

/// One that an OSD would refuse later, and then nothing would open its store.
#[test]
fn a_key_that_no_osd_takes_is_refused_with_the_reason() {
    let mut bench = Bench::new();
    let padded = format!("{}{}", &DMCRYPT[..31], " ".repeat(31));
    for (text, why) in
        [("sesame", "6 characters: at least 32"), (padded.as_str(), "31 characters: at least 32")]
    {
        let output = new(&mut bench, &secrets(2, text));
        assert_eq!(output.code, Errno::EINVAL.negated(), "{text}");
        assert!(output.text.contains(why) && !output.text.contains(text), "{}", output.text);
    }
    let output = new(&mut bench, &secrets(2, &"x".repeat(KEY_CHARS_MAX + 1)));
    assert_eq!(output.code, Errno::EINVAL.negated(), "{}", output.text);
    assert!(output.text.contains("65536 characters at most"), "{}", output.text);
    assert_eq!((kept(&bench), bench.state.osd.upcoming().exists(3)), ((Vec::new(), false), false));
    assert_eq!(new(&mut bench, &secrets(2, &"x".repeat(KEY_CHARS_MAX))).code, 0);
}

fn replace(bench: &mut Bench, was: &str, now: &str) -> Output {
    let command = format!(r#"{{"prefix":"config-key replace","key":"dm-crypt/osd/{UUID}/luks"}}"#);
    bench.run(&command, format!(r#"{{"was":"{was}","now":"{now}"}}"#).as_bytes())
}

/// A change of the key that was abandoned, and whose new key comes when another one has been made: that would open nothing.
#[test]
fn a_key_replaces_the_one_that_it_names_and_no_later_one() {
    let mut bench = Bench::new();
    let missing = replace(&mut bench, DMCRYPT, "abandoned");
    assert_eq!(missing.code, Errno::ENOENT.negated(), "a destroyed OSD's key does not come back");
    assert_eq!(new(&mut bench, &secrets(2, DMCRYPT)).code, 0);
    let name = format!("dm-crypt/osd/{UUID}/luks");
    let held = |bench: &Bench| bench.state.config_keys.value(&name).map(|value| value.to_vec());
    for _ in 0..2 {
        assert_eq!(replace(&mut bench, DMCRYPT, "second").code, 0, "said again, it is there already");
        assert_eq!(held(&bench), Some(b"second".to_vec()));
    }
    let late = replace(&mut bench, DMCRYPT, "abandoned");
    assert_eq!((late.code, held(&bench)), (Errno::ECANCELED.negated(), Some(b"second".to_vec())));
    assert!(late.text.contains("another value") && !late.text.contains("second"), "{}", late.text);
    assert_eq!(replace(&mut bench, "second", "third").code, 0);
    assert_eq!(held(&bench), Some(b"third".to_vec()));
}

#[test]
fn a_replacement_that_is_none_is_refused() {
    let mut bench = Bench::new();
    bench.ask(r#"{"prefix":"config-key set","key":"k","val":"v"}"#);
    let long = format!(r#"{{"was":"v","now":"{}"}}"#, "x".repeat(KEY_CHARS_MAX + 1));
    for (input, errno) in [
        ("", Errno::EINVAL),
        ("v", Errno::EINVAL),
        (r#"{"was":"v"}"#, Errno::EINVAL),
        (r#"{"was":"v","now":7}"#, Errno::EINVAL),
        (long.as_str(), Errno::EFBIG),
    ] {
        let output = bench.run(r#"{"prefix":"config-key replace","key":"k"}"#, input.as_bytes());
        assert_eq!(output.code, errno.negated(), "{input}: {}", output.text);
    }
    assert_eq!(bench.ask(r#"{"prefix":"config-key get","key":"k"}"#), "v");
}

#[test]
fn a_destroyed_or_purged_osd_s_keys_are_forgotten() {
    for end in ["destroy", "purge", "purge-new"] {
        let mut bench = Bench::new();
        assert_eq!(new(&mut bench, &secrets(2, DMCRYPT)).code, 0);
        // What a tool keeps beside it goes, too, and that of others stays.
        let beside = format!("dm-crypt/osd/{UUID}/luks-old");
        for key in [beside.as_str(), "dm-crypt/osd/other/luks"] {
            bench.ask(&format!(r#"{{"prefix":"config-key set","key":"{key}","val":"x"}}"#));
        }
        let force = if end == "purge-new" { "" } else { r#","force":true"# };
        bench.ask(&format!(r#"{{"prefix":"osd {end}","id":3{force},"yes_i_really_mean_it":true}}"#));
        assert_eq!(kept(&bench), (vec!["dm-crypt/osd/other/luks".to_owned()], false), "{end}");
    }
}
