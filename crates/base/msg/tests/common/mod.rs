//! Reads the messages of `testdata`; the README in `testdata/messages` describes the files.

use nacre_msg::RawMessage;
use std::fs;
use std::path::Path;

/// A captured message and the name of its file.
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) raw: RawMessage,
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("hex digits");
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::try_from(digit(pair[0]) << 4 | digit(pair[1])).expect("two digits")).collect()
}

fn parse(text: &str) -> RawMessage {
    let mut lines = text.lines();
    let words: Vec<&str> = lines.next().expect("a header line").split(' ').collect();
    let number = |key: &str| -> u64 {
        let at = words.iter().position(|word| *word == key).expect("a header field");
        words[at + 1].parse().expect("a number")
    };
    let short = |key: &str| u16::try_from(number(key)).expect("a 16-bit field");
    let (mut front, mut data) = (Vec::new(), Vec::new());
    for line in lines {
        match line.split_once(' ').expect("a segment and its bytes") {
            ("f", hex) => front.extend(unhex(hex)),
            ("d", hex) => data.extend(unhex(hex)),
            (other, _) => panic!("no segment is called {other}"),
        }
    }
    RawMessage {
        tid: number("tid"),
        kind: short("kind"),
        version: short("version"),
        compat: short("compat"),
        priority: short("priority"),
        front: front.into(),
        middle: Vec::new().into(),
        data: data.into(),
    }
}

/// The messages in a folder of `testdata`, by name.
pub(crate) fn messages(folder: &str) -> Vec<Golden> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata").join(folder);
    let mut all: Vec<Golden> = fs::read_dir(directory)
        .expect("the captured messages")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "hex"))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a captured message");
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            Golden { name, raw: parse(&text) }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}
