//! What a user sees who uses the program wrongly. That this test stands here has `cargo test --workspace` build the program itself, which the
//! interop tests run.

use std::process::{Command, Output};

fn nacre(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.args(arguments).output().expect("the program can be started")
}

#[test]
fn each_command_explains_itself() {
    for command in ["up", "mon", "osd", "store", "bench"] {
        let shown = nacre(&[command, "--help"]);
        assert!(shown.status.success(), "{command}");
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(text.contains(&format!("Usage: nacre {command}")), "{text}");
    }
}

#[test]
fn wrong_use_ends_with_status_2_and_says_what_is_wrong() {
    let cases: [(&[&str], &str); 4] = [
        (&[], "Usage: nacre <COMMAND>"),
        (&["osd", "--nonsense"], "unexpected argument '--nonsense'"),
        (&["up", "--osds", "many"], "invalid value 'many' for '--osds"),
        (&["mon", "recover"], "required arguments were not provided"),
    ];
    for (arguments, text) in cases {
        let refused = nacre(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(text) && refused.stdout.is_empty(), "{arguments:?}: {said}");
    }
}

/// As in `nacre ... | head`.
#[test]
fn nobody_who_reads_is_no_reason_to_fail() {
    let ends_with = |arguments: &[&str]| {
        let (_, nobody_reads) = std::io::pipe().expect("a pipe");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
        command.args(arguments).stdout(nobody_reads.try_clone().expect("a descriptor")).stderr(nobody_reads);
        command.status().expect("the program can be started").code()
    };
    assert_eq!(ends_with(&["bench", "experiment"]), Some(0));
    assert_eq!(ends_with(&["store", "check", "/nonexistent"]), Some(1));
}

#[test]
fn output_that_has_no_room_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device of Linux");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    let ended =
        command.args(["bench", "experiment"]).stdout(full).output().expect("the program can be started");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(1) && said.contains("could be written"), "{said}");
}
