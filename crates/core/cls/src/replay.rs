//! Replays what a real OSD answered (`testdata/classes/*.calls`) on [`TestObject`]s. The head of
//! `testdata/classes/record.py` explains the lines.

use crate::testing::TestObject;
use nacre_buf::{ByteStr, Bytes};
use nacre_types::SnapId;
use std::fmt::Write;

fn unhex(text: &str) -> Bytes {
    if text == "-" {
        return Bytes::new();
    }
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(digit).collect::<Vec<_>>().into()
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string");
        text
    })
}

/// `?` in what was recorded stands for anything.
fn same(recorded: &str, ours: &str) -> bool {
    let mut pairs = recorded.bytes().zip(ours.bytes());
    recorded.len() == ours.len() && pairs.all(|(a, b)| a == b || a == b'?')
}

/// What we answer to a call, in the words of the file.
fn answer(object: &mut TestObject, class: &str, method: &str, input: &str) -> String {
    match object.call(class, method, unhex(input)) {
        Ok(output) => format!("= {}", hex(&output)),
        Err(errno) => format!("! {}", errno.0),
    }
}

/// The object's data, in the words of the file.
fn pieces_of(object: &TestObject, recorded: &[&str]) -> String {
    let mut rest = object.data().to_vec();
    let mut ours = vec![rest.len().to_string()];
    for piece in &recorded[1..] {
        let (offset, bytes) = piece.split_once(':').expect("a piece");
        let start: usize = offset.parse().expect("an offset");
        let piece = rest.get_mut(start..start + bytes.len() / 2).unwrap_or_default();
        ours.push(format!("{offset}:{}", hex(piece)));
        piece.fill(0);
    }
    if let Some(at) = rest.iter().position(|byte| *byte != 0) {
        ours.push(format!("{at}:{}", hex(&rest[at..])));
    }
    ours.join(" ")
}

/// What we have where the file says what a real OSD had; none when the line says something else.
fn state(object: &TestObject, words: &[&str]) -> Option<String> {
    Some(match *words {
        ["value", key, _] => hex(&object.value(key)),
        ["keys", _] => object.omap().len().to_string(),
        ["xattr", name, _] => {
            hex(object.all_attrs().get(name.as_bytes()).map_or(&[], |value| value.as_ref()))
        }
        ["bytes", ref recorded @ ..] => pieces_of(object, recorded),
        _ => return None,
    })
}

fn replay(text: &str, differences: &mut String) {
    let mut object = TestObject::default();
    let mut title = "";
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        if let Some(ours) = state(&object, &words) {
            if !line.ends_with(&ours) && !same(&line[line.len().saturating_sub(ours.len())..], &ours) {
                writeln!(differences, "{:4} {title}: {line}\n     ours {ours}", index + 1).expect("a string");
            }
            continue;
        }
        match words[..] {
            ["object", name, exists] => {
                title = name;
                object = if exists == "existing" { TestObject::existing() } else { TestObject::default() };
            }
            ["data", data] => object.set_data(&unhex(data)),
            ["omap", key, value] => object.set_omap(ByteStr::from(key), unhex(value)),
            ["attr", name, value] => object.set_attribute(ByteStr::from(name), unhex(value)),
            ["snap_seq", seq] => object.snap_seq = SnapId(seq.parse().expect("a number")),
            [class, method, input, kind, rest] => {
                let ours = answer(&mut object, class, method, input);
                let recorded = format!("{kind} {rest}");
                if !same(&recorded, &ours) {
                    writeln!(
                        differences,
                        "{:4} {title}: {class} {method} {input}\n     OSD  {recorded}\n     ours {ours}",
                        index + 1
                    )
                    .expect("a string");
                }
            }
            _ => panic!("line {}: {line}", index + 1),
        }
    }
}

#[test]
fn a_real_osd_answered_the_same() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../testdata/classes");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "calls"));
    files.sort();
    assert!(!files.is_empty());
    let mut all = String::new();
    for path in files {
        let mut differences = String::new();
        replay(&std::fs::read_to_string(&path).expect("a file"), &mut differences);
        if !differences.is_empty() {
            writeln!(all, "{}\n{differences}", path.display()).expect("a string");
        }
    }
    assert!(all.is_empty(), "{all}");
}
