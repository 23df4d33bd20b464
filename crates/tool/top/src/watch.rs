//! [`Watch`]: asks the cluster every second, on a thread of its own, so that keys work while it does not answer.

use anyhow::{Context, Result};
use nacre_doctor::Session;
use serde_json::Value;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// Time between an answer and the next question.
const PERIOD: Duration = Duration::from_secs(1);
/// Answers that nobody has taken yet.
const NEWS_MAX: usize = 4;

/// How the cluster is, or why that is not known.
pub(crate) type News = Result<Value, String>;

/// See the module's documentation.
pub(crate) struct Watch(Receiver<News>);

/// Asks how the cluster is, once.
pub(crate) fn overview(session: &mut Session) -> News {
    session.ask("nacre overview", &[]).map_err(|why| {
        let hint = "only Nacre's monitors know it; 'ceph -s' asks Ceph's";
        if why.contains("command not known") { format!("{why}: {hint}") } else { why }
    })
}

impl Watch {
    /// Asks from now on.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub(crate) fn start(mut session: Session) -> Result<Self> {
        let (sender, receiver) = sync_channel(NEWS_MAX);
        let ask = move || {
            loop {
                let waited = session.wait(PERIOD).map_err(|error| format!("{error:#}"));
                let news = waited.and_then(|()| overview(&mut session));
                if sender.send(news).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("top/ask".to_owned()).spawn(ask).context("no thread to ask with")?;
        Ok(Self(receiver))
    }

    /// What has come since the last call.
    pub(crate) fn news(&self) -> impl Iterator<Item = News> + '_ {
        self.0.try_iter()
    }
}
