use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn options(words: &[&str]) -> Options {
    Line::parse_from(std::iter::once(&"experiment").chain(words)).options
}

/// Every cluster and every cell that the catalogue names is one that the bench understands, and the sides of a pair differ.
#[test]
fn the_catalogue_is_well_formed() {
    let folder = Scratch::new(None).expect("a folder");
    for experiment in &EXPERIMENTS {
        let options = options(&[experiment.name, "--binary", "nacre"]);
        let pairs = experiment.plan.pairs;
        assert!(!pairs.is_empty(), "{}", experiment.name);
        load_of(experiment, &options.load).check().expect(experiment.name);
        for (a, b) in pairs {
            let specs = [a, b].map(|side| spec(&options, side, Some(&folder)).expect(side.label));
            assert_ne!(specs[0], specs[1], "{}", experiment.name);
            assert_ne!(a.label, b.label);
        }
    }
}

#[test]
fn the_list_says_what_each_asks_and_how_long_it_takes() {
    let text = list(&options(&[])).expect("a list");
    for experiment in &EXPERIMENTS {
        assert!(text.contains(experiment.name) && text.contains(experiment.asks), "{text}");
    }
    // Four cells, six rounds of four runs, twelve seconds each, and what comes before.
    let copies = text.split("copies\n").nth(1).and_then(|rest| rest.lines().nth(1)).expect("its lines");
    assert!(copies.trim().starts_with("some 20 minutes"), "{copies}");
    let short = list(&options(&["--rounds", "1", "--cells", "randread-4k-qd1"])).expect("a list");
    assert!(short.contains("some 2 minutes, of randread-4k-qd1"), "{short}");
}

#[test]
fn what_cannot_be_tried_says_why() {
    let said = |words: &[&str]| format!("{:#}", run(&options(words)).expect_err("refused"));
    assert!(said(&["nonsense"]).contains("no experiment is called 'nonsense'; there are osds-per-device, "));
    assert!(said(&["log-device"]).contains("--log-dir"));
    let folder = std::env::temp_dir().display().to_string();
    assert!(said(&["log-device", "--log-dir", &folder, "--dir", &folder]).contains("on the same device"));
    assert!(said(&["copies", "--log-dir", &folder]).contains("is for the experiment log-device"));
    assert!(said(&["copies", "--rounds", "0", "--binary", "/"]).contains("--rounds is from 1"));
}
