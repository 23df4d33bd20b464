//! Starting and stopping an OSD's threads.

use crate::config::OsdConfig;
use crate::lead::Lead;
use crate::letter::{Letter, Post};
use crate::shard::{Parts, Shard};
use crate::storage::{self, StorageError, StoreConfig};
use nacre_env::real::RealNet;
use nacre_env::{Clock, RealClock, SystemEntropy};
use nacre_msgr::Config as MsgrConfig;
use nacre_service::{Mailbox, Mailman, Messenger, mailbox};
use nacre_store::ObjectStore;
use nacre_types::{AddrVec, EntityAddr, Entropy};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Why an OSD did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No sockets, or the address is not of this machine.
    #[error("osd.{osd}: cannot listen on {addr}: {source}")]
    Listen {
        /// Its number.
        osd: i32,
        /// Where it was to listen.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Its store cannot be opened.
    #[error("osd.{osd}: {source}")]
    Store {
        /// Its number.
        osd: i32,
        /// What is wrong.
        source: StorageError,
    },
    /// The device store has one owner.
    #[error("osd.{osd}: {shards} shards need a store in memory; leave --shards out, or give --store memory")]
    Shards {
        /// Its number.
        osd: i32,
        /// Shards asked for.
        shards: usize,
    },
    /// No threads or descriptors left.
    #[error("osd.{osd}: {source}")]
    System {
        /// Its number.
        osd: i32,
        /// What the system says.
        source: io::Error,
    },
}

/// A running OSD.
#[derive(Debug)]
pub struct OsdHandle {
    mailmen: Vec<Mailman<Letter>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    booted: Arc<AtomicBool>,
}

impl OsdHandle {
    /// True while the cluster has it up.
    #[must_use]
    pub fn is_booted(&self) -> bool {
        self.booted.load(Ordering::Acquire)
    }

    /// True when one of its threads has ended, which it does only when it cannot go on.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops it and waits until it has.
    pub fn stop(self) {
        for mailman in &self.mailmen {
            // A full mailbox belongs to a thread that is alive and will find its sockets gone soon after.
            while mailman.try_send(Letter::Stop).is_err() && !self.has_failed() {
                std::thread::yield_now();
            }
        }
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => (),
                Ok(Err(error)) => tracing::error!(%error, "a shard ended"),
                Err(_) => tracing::error!("a shard panicked"),
            }
        }
    }
}

/// What one shard listens with.
struct Ears {
    messenger: Messenger,
    mailbox: Mailbox<Letter>,
    public: nacre_env::ListenerId,
    cluster: Option<nacre_env::ListenerId>,
    store: Box<dyn ObjectStore + Send>,
}

/// The part of the store that one of `shards` has.
fn part_of(store: &StoreConfig, shards: usize) -> StoreConfig {
    match store {
        StoreConfig::Memory { capacity_bytes } => {
            StoreConfig::Memory { capacity_bytes: capacity_bytes / shards as u64 }
        }
        whole @ StoreConfig::File { .. } => whole.clone(),
    }
}

/// Starts the threads of an OSD. It boots by itself as soon as it reaches a monitor.
///
/// # Errors
/// [`StartError`].
pub fn start(config: OsdConfig) -> Result<OsdHandle, StartError> {
    let osd = config.id;
    let mut entropy = SystemEntropy::default();
    let clock = RealClock::start();
    let nonce = (entropy.u64() as u32).max(1);
    let any_port = SocketAddr::new(config.listen, 0);
    let listen_error = |source| StartError::Listen { osd, addr: any_port, source };
    let shards = config.shards.max(1);
    if shards > 1 && matches!(config.store, StoreConfig::File { .. }) {
        return Err(StartError::Shards { osd, shards });
    }
    let mut ears = Vec::new();
    let mut mailmen = Vec::new();
    let (mut public_addr, mut cluster_addr) = (any_port, any_port);
    for shard in 0..shards {
        let net = RealNet::new().map_err(|source| StartError::System { osd, source })?;
        let (mailman, mailbox) = mailbox(net.waker());
        mailmen.push(mailman);
        let store = storage::open(&part_of(&config.store, shards), &net);
        let store = store.map_err(|source| StartError::Store { osd, source })?;
        let mut messenger = Messenger::new(Box::new(net), clock.wall().sec.into());
        let (public, addr) = messenger.listen(public_addr, shards > 1).map_err(listen_error)?;
        public_addr = addr;
        let mut cluster = None;
        if shard == 0 {
            let (listener, addr) = messenger.listen(any_port, false).map_err(listen_error)?;
            (cluster, cluster_addr) = (Some(listener), addr);
        }
        ears.push(Ears { messenger, mailbox, public, cluster, store });
    }
    let capacity_bytes = ears.iter().map(|ears| ears.store.usage().total_bytes).sum();
    let public = Arc::new(MsgrConfig::osd(AddrVec::of(EntityAddr::msgr2(public_addr, nonce)), osd.into()));
    let cluster_addrs = AddrVec::of(EntityAddr::msgr2(cluster_addr, nonce));
    let cluster = Arc::new(MsgrConfig::osd(cluster_addrs, osd.into()));
    let booted = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for (shard, mut ears) in ears.into_iter().enumerate() {
        ears.messenger.serve(ears.public, Arc::clone(&public));
        if let Some(listener) = ears.cluster {
            ears.messenger.serve(listener, Arc::clone(&cluster));
        }
        let lead = (shard == 0)
            .then(|| Lead::new(config.clone(), capacity_bytes, Arc::clone(&public), Arc::clone(&cluster)));
        let post = Post::new(shard, mailmen.clone());
        let (config, booted) = (config.clone(), Arc::clone(&booted));
        let run = move || {
            let parts = Parts {
                config,
                clock: Box::new(clock),
                entropy: Box::new(SystemEntropy::default()),
                messenger: ears.messenger,
                mailbox: ears.mailbox,
                post,
                lead,
                store: ears.store,
                booted,
            };
            Shard::new(parts).run()
        };
        let thread = std::thread::Builder::new().name(format!("osd.{osd}/{shard}")).spawn(run);
        threads.push(thread.map_err(|source| StartError::System { osd, source })?);
    }
    Ok(OsdHandle { mailmen, threads, booted })
}
