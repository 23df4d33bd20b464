//! Which OSDs may boot: those that the others understand, and of a release that the cluster allows.

use super::{ADMIN, World, addr, store};
use crate::front::FrontEvent;
use crate::osd::{BootOutcome, BootRefusal, BootRequest};
use nacre_msg::OsdBoot;
use nacre_msg::peer::PeerVersions;
use nacre_types::OsdId;
use nacre_types::features::SUPPORTED;

#[test]
fn only_osds_that_the_others_understand_boot() {
    let mut world = World::new(3);
    let sessions = world.boot_all(2);
    let session = world.connect("osd.2");
    let mut refused = |edit: &dyn Fn(OsdBoot) -> OsdBoot, reason: &str| {
        world.boot_as(session, 2, 0, edit);
        assert!(!world.map().is_up(2), "{reason}");
        assert!(world.logged(reason), "{reason}");
    };
    let with_versions = |boot: OsdBoot, text: Option<&str>| {
        let mut metadata = boot.metadata;
        metadata.remove(PeerVersions::METADATA_KEY);
        metadata.extend(text.map(|text| (PeerVersions::METADATA_KEY.to_owned(), text.to_owned())));
        OsdBoot { metadata, ..boot }
    };
    refused(&|boot| with_versions(boot, None), "it is a ceph-osd");
    refused(&|boot| with_versions(boot, Some("8-9")), "it speaks versions 8-9");
    let octopus = SUPPORTED & !(1 << 20);
    refused(&|boot| OsdBoot { features: octopus, ..boot }, "require_osd_release is pacific");
    let told = |world: &World| {
        let checks = crate::health::checks(&world.mon.state);
        checks.into_iter().find(|check| check.code == "OSD_BOOT_REFUSED").map(|check| check.detail.join(";"))
    };
    world.boot_as(session, 2, 0, |boot| with_versions(boot, None));
    assert!(told(&world).is_some_and(|text| text.starts_with("osd.2 may not boot: it is a ceph-osd")));
    world.front_event(FrontEvent::Closed { session });
    assert_eq!(told(&world), None, "it is not there any more");
    let session = world.connect("osd.2");
    world.mon.state.osd.change().new_require_osd_release = 13;
    world.settle();
    let mut refused = |edit: &dyn Fn(OsdBoot) -> OsdBoot, reason: &str| {
        world.boot_as(session, 2, 0, edit);
        assert!(!world.map().is_up(2) && world.logged(reason), "{reason}");
    };
    refused(&|boot| boot, "set that to nautilus at least");
    world.boot_as(session, 2, 0, |boot| OsdBoot { features: octopus, ..boot });
    assert!(world.map().is_up(2));
    assert_eq!(told(&world), None);
    let admin = world.connect(ADMIN);
    let release = |name: &str, sure: bool| {
        format!(r#"{{"prefix":"osd require-osd-release","release":"{name}","yes_i_really_mean_it":{sure}}}"#)
    };
    assert_eq!(world.ask(admin, &release("octopus", false)).map(|ack| ack.result), Some(0));
    let ack = world.ask(admin, &release("pacific", false)).expect("an answer");
    assert!(ack.result == -1 && ack.status.contains("osd.2"), "{ack:?}");
    assert_eq!(world.map().require_osd_release, 15);
    assert_eq!(world.ask(admin, &release("pacific", true)).map(|ack| ack.result), Some(0));
    assert_eq!(world.map().require_osd_release, 16);
    let ack = world.ask(admin, &release("octopus", true)).expect("an answer");
    assert_eq!(ack.result, -1);
    assert!(sessions.len() == 2);
}

/// Neither is up when the other one asks.
#[test]
fn two_that_do_not_understand_each_other_do_not_come_up_together() {
    let mut world = World::new(2);
    let boots: Vec<_> = ["4-5", "2-3"]
        .into_iter()
        .enumerate()
        .map(|(osd, versions)| {
            let (osd, port) =
                (OsdId::try_from(osd).expect("small"), 9000 + u16::try_from(osd).expect("small") * 10);
            BootRequest {
                osd,
                epoch: 1,
                store: store(osd),
                client_addrs: addr(port),
                cluster_addrs: addr(port + 1),
                hb_back_addrs: addr(port + 2),
                hb_front_addrs: addr(port + 3),
                last_clean: (0, 0),
                boot_epoch: 0,
                features: SUPPORTED,
                metadata: [(PeerVersions::METADATA_KEY.to_owned(), versions.to_owned())].into(),
            }
        })
        .collect();
    let (now, wall) = (world.now, world.wall);
    let state = &mut world.mon.state;
    let outcomes: Vec<_> = boots.iter().map(|boot| state.osd.boot(boot, now, wall, &state.config)).collect();
    assert_eq!(outcomes[0], BootOutcome::Booted);
    let BootOutcome::Refused(BootRefusal::Versions { osd, .. }) = outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!(osd, 0);
}
