//! [`Prober`]: a thread with a client of its own that probes pools when the leader wants it. `nacre_mon` says when and judges what comes of it.
//!
//! Each round is a new client: it authenticates, gets the map and connects to OSDs as any other does.

use nacre_auth::{CryptoKey, Offer};
use nacre_client::{Access, Client, Probe};
use nacre_env::{RealClock, Wake};
use nacre_mgr::probes::PoolProbe;
use nacre_mon::{PROBE_NAMESPACE, PROBE_USER, ProbeOrder};
use nacre_service::{Mailbox, MailboxSender, mailbox};
use nacre_types::{AuthName, EntityAddr, EntityKind, PoolId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// What a round has found, or why there was none.
pub(crate) type Outcome = Result<BTreeMap<PoolId, PoolProbe>, String>;

/// A round, and where the cluster is.
pub(crate) struct Round {
    pub(crate) monitors: Vec<EntityAddr>,
    pub(crate) order: ProbeOrder,
}

/// The way to the thread, which begins with the first order and ends with this.
pub(crate) struct Prober {
    name: String,
    pub(crate) results: Mailbox<Outcome>,
    sender: MailboxSender<Outcome>,
    thread: Option<SyncSender<Round>>,
    stop: Arc<AtomicBool>,
}

impl Prober {
    /// Of the monitor `name`, whose thread `waker` wakes.
    pub(crate) fn new(name: &str, waker: Arc<dyn Wake>) -> Self {
        let (sender, results) = mailbox(waker);
        Self { name: format!("mon.{name}/probe"), results, sender, thread: None, stop: Arc::default() }
    }

    /// Hands a round to the thread, which is begun for the first one.
    pub(crate) fn give(&mut self, order: Round) -> Result<(), String> {
        if self.thread.is_none() {
            let (orders, receiver) = sync_channel(1);
            let (sender, stop) = (self.sender.clone(), Arc::clone(&self.stop));
            std::thread::Builder::new()
                .name(self.name.clone())
                .spawn(move || serve(&receiver, &sender, &stop))
                .map_err(|error| format!("no thread for probes: {error}"))?;
            self.thread = Some(orders);
        }
        let thread = self.thread.as_ref().ok_or("no thread")?;
        thread.try_send(order).map_err(|_| "the thread of probes has not ended its last round".to_owned())
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn serve(orders: &Receiver<Round>, results: &MailboxSender<Outcome>, stop: &AtomicBool) {
    while let Ok(order) = orders.recv() {
        // Full only if nobody takes results any more.
        let _nobody = results.try_send(probe(order, stop));
    }
}

fn probe(Round { monitors, order }: Round, stop: &AtomicBool) -> Outcome {
    let ProbeOrder { key, pools, round, patience } = order;
    let clock = RealClock::start();
    let mut client = Client::of_this_machine(access(monitors, key), clock)
        .map_err(|error| format!("no sockets for a client: {error}"))?;
    let probe = Probe::new(&mut client, &clock, PROBE_NAMESPACE, patience, stop);
    probe.round(pools.as_ref(), round).map_err(|error| error.to_string())
}

fn access(monitors: Vec<EntityAddr>, key: CryptoKey) -> Access {
    Access {
        monitors,
        name: AuthName::new(EntityKind::CLIENT, PROBE_USER),
        key,
        modes: (Offer::secure_first(), Offer::crc_first()),
    }
}
