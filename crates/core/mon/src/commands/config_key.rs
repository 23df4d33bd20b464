//! Blobs that tools keep under text keys.

use super::call::{Answer, Call, done, fail, refuse};
use super::table::{Command, command};
use crate::command::Output;
use crate::config_key::{KEY_BYTES_MAX, KEYS_COUNT_MAX, STORE_BYTES_MAX, VALUE_BYTES_MAX};
use nacre_buf::Bytes;
use nacre_format::{Node, Section};
use nacre_types::Errno;
use serde_json::Value;

pub(super) const COMMANDS: &[Command] = &[
    command("config-key get name=key,type=CephString", "config-key", "r", "The value of a key", get),
    command(
        "config-key set name=key,type=CephString name=val,type=CephString,req=false",
        "config-key",
        "rw",
        "Keep a value, from the command line or the input",
        set,
    ),
    command(
        "config-key put name=key,type=CephString name=val,type=CephString,req=false",
        "config-key",
        "rw",
        "Keep a value, from the command line or the input",
        set,
    ),
    command(
        "config-key replace name=key,type=CephString",
        "config-key",
        "rw",
        "Keep another value in place of the one that is there: {\"was\": ..., \"now\": ...} as input",
        replace,
    ),
    command("config-key rm name=key,type=CephString", "config-key", "rw", "Remove a key", rm),
    command("config-key del name=key,type=CephString", "config-key", "rw", "Remove a key", rm),
    command("config-key exists name=key,type=CephString", "config-key", "r", "Is there such a key", exists),
    command("config-key ls", "config-key", "r", "All keys", ls),
    command("config-key list", "config-key", "r", "All keys", ls),
    command(
        "config-key dump name=key,type=CephString,req=false",
        "config-key",
        "r",
        "Keys and values, all or those that begin so",
        dump,
    ),
];

fn get(call: &mut Call<'_>) -> Answer {
    match call.state.config_keys.value(call.args.text("key")) {
        Some(value) => Ok(Output::data(value.clone())),
        None => fail(Errno::ENOENT, ""),
    }
}

fn set(call: &mut Call<'_>) -> Answer {
    let key = call.args.text("key").to_owned();
    let value = match call.args.text_opt("val") {
        Some(text) => Bytes::from(text.to_owned()),
        None => call.data.clone(),
    };
    keep(call, key, value)
}

/// Ours. Keeps a value only where the one is there that it is to replace, so that one which comes late replaces nothing that is newer.
/// Neither is among the arguments, which others see.
fn replace(call: &mut Call<'_>) -> Answer {
    let key = call.args.text("key").to_owned();
    let wrong = || refuse(Errno::EINVAL, "the input is no {\"was\": \"TEXT\", \"now\": \"TEXT\"}");
    let input: Value = serde_json::from_slice(call.data).map_err(|_| wrong())?;
    let text = |name: &str| input.get(name).and_then(Value::as_str).ok_or_else(wrong);
    let (was, now) = (text("was")?, text("now")?);
    match call.state.config_keys.value(&key) {
        None => fail(Errno::ENOENT, format!("there is no key '{key}'")),
        Some(held) if held.as_ref() == now.as_bytes() => done(format!("'{key}' has this value already")),
        Some(held) if held.as_ref() != was.as_bytes() => {
            fail(Errno::ECANCELED, format!("'{key}' has another value than the one to be replaced"))
        }
        Some(_) => keep(call, key, Bytes::from(now.to_owned())),
    }
}

fn keep(call: &mut Call<'_>, key: String, value: Bytes) -> Answer {
    if value.len() > VALUE_BYTES_MAX {
        return fail(
            Errno::EFBIG,
            format!("a value has {VALUE_BYTES_MAX} bytes at most (mon_config_key_max_entry_size)"),
        );
    }
    if !call.state.config_keys.has_room(&key, value.len()) {
        return fail(
            Errno::ENOSPC,
            format!(
                "there is no room: {KEYS_COUNT_MAX} keys of {KEY_BYTES_MAX} bytes at most, and {STORE_BYTES_MAX} bytes with their values together, are kept; remove some with 'ceph config-key rm'"
            ),
        );
    }
    call.state.config_keys.set(&key, value);
    done(format!("set {key}"))
}

fn rm(call: &mut Call<'_>) -> Answer {
    let key = call.args.text("key").to_owned();
    call.state.config_keys.remove(&key);
    done("key deleted")
}

fn exists(call: &mut Call<'_>) -> Answer {
    let key = call.args.text("key");
    match call.state.config_keys.value(key) {
        Some(_) => done(format!("key '{key}' exists")),
        None => fail(Errno::ENOENT, format!("key '{key}' doesn't exist")),
    }
}

fn ls(call: &mut Call<'_>) -> Answer {
    let keys = call.state.config_keys.iter_prefix("").map(|(key, _)| key);
    call.tree("keys", Node::array("key", keys))
}

fn dump(call: &mut Call<'_>) -> Answer {
    let prefix = call.args.text("key");
    let text = |value: &Bytes| match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(|ch| ch.is_control() && !ch.is_whitespace()) => text.to_owned(),
        _ => format!("<<< binary blob of length {} >>>", value.len()),
    };
    let all = call.state.config_keys.iter_prefix(prefix).map(|(key, value)| (key.clone(), text(value)));
    call.tree("config-key store", all.collect::<Section>())
}
