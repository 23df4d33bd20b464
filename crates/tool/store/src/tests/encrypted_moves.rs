//! Log and metadata of encrypted stores moved, on devices for which files stand, and on files. Losses of power are among the tests of
//! `daemon/osd`; tools that are killed are among those of `test/interop`.

use super::content::{Folder, change_at, fill_at, is_twin, twin};
use super::devices::{META_BYTES, device, refusal};
use super::encrypted::{Encrypted, KEY, KNOWN, is_sound, key, shown_in, spoil_keys};
use super::moves::{Fateful, link, to};
use super::repair_options;
use crate::moves::carry_out;
use crate::repair::repair;
use crate::target::Target;
use nacre_osd::storage::{self, MoveError, MoveTo, Moved, move_part, settle_move};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

fn is_sound_twin(target: &Target, twin: &Folder) {
    is_sound(target);
    is_twin(target, twin);
}

/// A store with content, and two places beside it, where nothing is yet.
fn with_places(is_on_device: bool) -> (Encrypted, [PathBuf; 2]) {
    let store = match is_on_device {
        true => Encrypted::on_a_device(Some(&key(KEY))),
        false => Encrypted::on_files(Some(&key(KEY))),
    };
    fill_at(&store.target());
    change_at(&store.target());
    let places = match is_on_device {
        true => ["one", "two"].map(|name| device(&store.disks, name, 2 * META_BYTES)),
        false => ["one", "two"].map(|name| store.disks.path().join(name)),
    };
    (store, places)
}

/// The files of a place: itself, or what is in it.
fn files_of(place: &PathBuf) -> Vec<PathBuf> {
    match std::fs::read_dir(place) {
        Ok(entries) => entries.map(|entry| entry.expect("an entry").path()).collect(),
        Err(_) => vec![place.clone()],
    }
}

#[test]
fn log_and_metadata_go_to_other_places_and_back_and_nothing_shows_anywhere() {
    let twin = twin();
    for is_on_device in [true, false] {
        let (store, [one, two]) = with_places(is_on_device);
        for (what, place) in [
            (Moved::Log, Some(&one)),
            (Moved::Metadata, Some(&two)),
            (Moved::Log, None),
            (Moved::Log, Some(&one)),
            (Moved::Metadata, None),
            (Moved::Log, Some(&two)),
            (Moved::Metadata, Some(&one)),
            (Moved::Log, None),
            (Moved::Metadata, None),
        ] {
            carry_out(&store.target(), what, &place.map_or(MoveTo::Back, |place| to(place))).expect("moved");
            is_sound_twin(&store.target(), &twin);
        }
        let mut files = store.files.clone();
        files.extend([&one, &two].into_iter().filter(|place| place.exists()).flat_map(files_of));
        assert_eq!(shown_in(&files, &KNOWN), Vec::<&[u8]>::new(), "on a device: {is_on_device}");
        for name in ["log", "meta", "move"] {
            assert!(!store.folder.path().join(name).exists(), "{name} is left");
        }
    }
}

/// The copies are on one place, and what they were on before is given up: each is looked at as a device or file has it.
#[test]
fn what_is_elsewhere_and_what_it_left_show_nothing() {
    for is_on_device in [true, false] {
        let (store, [one, two]) = with_places(is_on_device);
        for (what, place) in [(Moved::Log, &one), (Moved::Metadata, &two)] {
            carry_out(&store.target(), what, &to(place)).expect("it can be moved");
        }
        let files: Vec<PathBuf> =
            store.files.iter().cloned().chain([&one, &two].into_iter().flat_map(files_of)).collect();
        assert!(files.len() > store.files.len(), "{files:?}");
        assert_eq!(shown_in(&files, &KNOWN), Vec::<&[u8]>::new(), "on a device: {is_on_device}");
        if is_on_device {
            let labels = [&one, &two].map(|place| storage::label_of(place).expect("a label").to_string());
            assert!(labels.iter().all(|label| label.contains("encrypted")), "{labels:?}");
        }
    }
}

#[test]
fn without_its_key_nothing_moves_or_is_undone_and_the_message_says_what_to_do() {
    for is_on_device in [true, false] {
        let (store, [one, _]) = with_places(is_on_device);
        let attempts = [
            (store.opened_by(&[]), "Give it with --key-file"),
            (store.opened_by(&["other"]), "does not open it"),
        ];
        for (target, why) in &attempts {
            for what in [Moved::Log, Moved::Metadata] {
                for place in [&to(&one), &MoveTo::Back] {
                    let said = refusal(carry_out(target, what, place));
                    assert!(said.contains(why), "{said}");
                }
            }
        }
        let folder = store.folder.path();
        assert!(!folder.join("move").exists() && link(&store.folder, "log").is_none());
        let killed = catch_unwind(AssertUnwindSafe(|| {
            move_part(folder, Some(&key(KEY)), Moved::Log, &to(&one), &mut Fateful::Killed)
        }));
        assert!(killed.is_err() && folder.join("move").exists());
        is_sound(&store.target());
        for (target, why) in &attempts {
            let said = refusal(carry_out(target, Moved::Log, &MoveTo::Back));
            assert!(said.contains(why) && folder.join("move").exists(), "{said}");
        }
        let settled = settle_move(folder, Some(&key(KEY))).expect("can be undone").expect("was interrupted");
        assert!(!settled.is_done && settled.what == Moved::Log, "{settled:?}");
        carry_out(&store.opened_by(&["other", "key"]), Moved::Log, &to(&one))
            .expect("one of the keys opens it");
        is_sound(&store.target());
    }
    let plain = Encrypted::on_files(None);
    let said = refusal(carry_out(&plain.target(), Moved::Log, &MoveTo::Back));
    assert!(said.contains("is not encrypted, and no key is needed"), "{said}");
}

#[test]
fn a_move_that_was_killed_or_finds_fault_leaves_the_store_as_it_was() {
    let (twin, secret) = (twin(), key(KEY));
    for is_on_device in [true, false] {
        let (store, [one, _]) = with_places(is_on_device);
        for what in [Moved::Log, Moved::Metadata] {
            for place in [to(&one), MoveTo::Back] {
                let begun =
                    |fate: &mut Fateful| move_part(store.folder.path(), Some(&secret), what, &place, fate);
                let outcome = begun(&mut Fateful::Fault);
                assert!(matches!(outcome, Err(MoveError::Unsound { .. })), "{outcome:?}");
                is_sound_twin(&store.target(), &twin);
                assert!(catch_unwind(AssertUnwindSafe(|| begun(&mut Fateful::Killed))).is_err());
                is_sound_twin(&store.target(), &twin);
                carry_out(&store.target(), what, &place).expect("it can be moved");
                is_sound_twin(&store.target(), &twin);
            }
        }
    }
}

/// The key block stays where it is, and must be whole: a move is no time to find out that it is not.
#[test]
fn a_store_with_one_whole_copy_of_its_key_block_is_repaired_first() {
    for is_on_device in [true, false] {
        let (store, [one, _]) = with_places(is_on_device);
        spoil_keys(&store);
        let said = refusal(carry_out(&store.target(), Moved::Log, &to(&one)));
        assert!(
            said.contains("copies of the wrapped key is damaged") && said.contains("stays as it is"),
            "{said}"
        );
        assert!(!store.folder.path().join("move").exists());
        repair(&repair_options(store.target(), false)).expect("can be repaired");
        carry_out(&store.target(), Moved::Log, &to(&one)).expect("it can be moved");
        is_sound(&store.target());
    }
}
