//! Bounded mailboxes: how shards and other threads hand work to each other without sharing state.

use nacre_env::Wake;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Messages that may lie in one mailbox; a sender that finds it full keeps its message and slows down.
pub const MAILBOX_MAX: usize = 8192;

/// The receiving end: owned by one thread, which looks into it once per turn.
#[derive(Debug)]
pub struct Mailbox<T> {
    queue: Receiver<T>,
    signalled: Arc<AtomicBool>,
}

/// The sending end, one copy per sender.
pub struct MailboxSender<T> {
    queue: SyncSender<T>,
    waker: Arc<dyn Wake>,
    /// True while the owner has been woken and has not looked yet: a burst costs one wake-up.
    signalled: Arc<AtomicBool>,
}

/// The mailbox is full, or its owner is gone; the message comes back.
#[derive(Debug)]
pub struct MailboxFull<T>(pub T);

/// A mailbox whose owner is woken by `waker`.
#[must_use]
pub fn mailbox<T>(waker: Arc<dyn Wake>) -> (MailboxSender<T>, Mailbox<T>) {
    let (sender, receiver) = sync_channel(MAILBOX_MAX);
    let signalled = Arc::new(AtomicBool::new(false));
    let mailbox_sender = MailboxSender { queue: sender, waker, signalled: Arc::clone(&signalled) };
    (mailbox_sender, Mailbox { queue: receiver, signalled })
}

impl<T> MailboxSender<T> {
    /// Delivers `message` and wakes the owner if needed.
    ///
    /// # Errors
    /// [`MailboxFull`] with the message.
    pub fn try_send(&self, msg: T) -> Result<(), MailboxFull<T>> {
        self.queue.try_send(msg).map_err(|refused| match refused {
            TrySendError::Full(msg) | TrySendError::Disconnected(msg) => MailboxFull(msg),
        })?;
        if !self.signalled.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
        Ok(())
    }
}

impl<T> Clone for MailboxSender<T> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            waker: Arc::clone(&self.waker),
            signalled: Arc::clone(&self.signalled),
        }
    }
}

impl<T> std::fmt::Debug for MailboxSender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MailboxSender")
    }
}

impl<T> Mailbox<T> {
    /// Takes what lies there, oldest first. The flag falls before the first look, so that a message that
    /// comes in between wakes the owner again instead of lying unseen; a sender raises it afterwards, so
    /// without the flag there is none that would not wake us.
    pub fn take(&self) -> impl Iterator<Item = T> + '_ {
        let signalled =
            self.signalled.load(Ordering::Acquire) && self.signalled.swap(false, Ordering::AcqRel);
        signalled.then(|| self.queue.try_iter()).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_burst_wakes_once_and_a_full_box_gives_the_message_back() {
        let count = Arc::new(Count::default());
        let waker: Arc<dyn Wake> = Arc::<Count>::clone(&count);
        let (mailbox_sender, mailbox) = mailbox::<usize>(waker);
        for msg in 0..MAILBOX_MAX {
            mailbox_sender.try_send(msg).expect("room");
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(matches!(mailbox_sender.try_send(7), Err(MailboxFull(7))));
        assert_eq!(mailbox.take().count(), MAILBOX_MAX);
        mailbox_sender.try_send(8).expect("room again");
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }
}
