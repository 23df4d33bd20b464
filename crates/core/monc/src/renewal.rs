//! [`Renewal`]: keeps tickets and rotating keys fresh with MAuth messages on the open session.

use crate::{Context, Effect};
use nacre_auth::{ClientAuth, ClientError, ClientReply, RotatingKeys};
use nacre_buf::Bytes;
use nacre_msg::AuthReply;
use nacre_types::{Stamp, UTime};
use std::time::Duration;

/// Between two requests for the same: a monitor that cannot give what we want is not asked all the time.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// A monitor that has not answered MAuth after this long is left.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Tickets,
    RotatingKeys,
}

/// Nothing more may be asked of this monitor: find another, authenticate anew.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GiveUp;

/// What is asked for and what comes next.
#[derive(Debug)]
pub(crate) struct Renewal {
    wants_rotating_keys: bool,
    rotating: RotatingKeys,
    asked: Option<(Work, Stamp)>,
    tickets_not_before: Stamp,
    rotating_not_before: Stamp,
    /// When the session needs attention next; computed whenever both clocks are at hand.
    deadline: Option<Stamp>,
}

impl Renewal {
    pub(crate) fn new(wants_rotating_keys: bool) -> Self {
        Self {
            wants_rotating_keys,
            rotating: RotatingKeys::new(),
            asked: None,
            tickets_not_before: Stamp(0),
            rotating_not_before: Stamp(0),
            deadline: None,
        }
    }

    /// A new session: no answer is owed any more.
    pub(crate) fn opened(&mut self) {
        self.asked = None;
        self.tickets_not_before = Stamp(0);
        self.rotating_not_before = Stamp(0);
    }

    pub(crate) fn closed(&mut self) {
        self.asked = None;
        self.deadline = None;
    }

    pub(crate) fn deadline(&self) -> Option<Stamp> {
        self.deadline
    }

    /// Ask for what has just turned out to be missing.
    pub(crate) fn hurry(&mut self) {
        self.tickets_not_before = Stamp(0);
        self.deadline = Some(Stamp(0));
    }

    /// The payload to send now, if anything is due.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, auth: &ClientAuth) -> Result<Option<Bytes>, GiveUp> {
        if let Some((_, since)) = self.asked {
            self.deadline = Some(since + REPLY_TIMEOUT);
            return if cx.now.since(since) >= REPLY_TIMEOUT { Err(GiveUp) } else { Ok(None) };
        }
        let payload = self.due(cx, auth)?;
        self.deadline = match self.asked {
            Some((_, since)) => Some(since + REPLY_TIMEOUT),
            None => self.next_due(cx, auth),
        };
        Ok(payload)
    }

    fn due(&mut self, cx: &mut Context<'_>, auth: &ClientAuth) -> Result<Option<Bytes>, GiveUp> {
        if cx.now >= self.tickets_not_before
            && let Some(payload) = auth.renewal(cx.wall, cx.entropy).map_err(|_| GiveUp)?
        {
            self.asked = Some((Work::Tickets, cx.now));
            self.tickets_not_before = cx.now + RETRY_INTERVAL;
            return Ok(Some(payload));
        }
        let keys_are_due = self.rotating_after(auth).is_some_and(|after| after <= cx.wall);
        if keys_are_due && cx.now >= self.rotating_not_before {
            self.asked = Some((Work::RotatingKeys, cx.now));
            self.rotating_not_before = cx.now + RETRY_INTERVAL;
            return Ok(Some(ClientAuth::rotating_request()));
        }
        Ok(None)
    }

    /// With method none there are no secrets.
    fn rotating_after(&self, auth: &ClientAuth) -> Option<UTime> {
        let wanted = self.wants_rotating_keys && auth.renew_after().is_some();
        wanted.then(|| self.rotating.refresh_after())
    }

    fn next_due(&self, cx: &Context<'_>, auth: &ClientAuth) -> Option<Stamp> {
        let at = |wall: UTime, not_before: Stamp| (cx.now + wall.since(cx.wall)).max(not_before);
        let tickets = auth.renew_after().map(|wall| at(wall, self.tickets_not_before));
        let rotating = self.rotating_after(auth).map(|wall| at(wall, self.rotating_not_before));
        tickets.into_iter().chain(rotating).min()
    }

    /// The monitor's answer to a request for tickets (`MAuthReply`).
    pub(crate) fn reply(
        &mut self,
        cx: &Context<'_>,
        auth: &mut ClientAuth,
        reply: AuthReply,
    ) -> Result<Option<Effect>, GiveUp> {
        let Some((work, _)) = self.asked.take() else { return Ok(None) };
        self.deadline = Some(cx.now);
        match (work, auth.reply(reply.result, reply.payload, cx.wall)) {
            (_, Ok(ClientReply::Tickets)) => Ok(None),
            (_, Ok(ClientReply::Rotating(keys))) => {
                self.rotating = keys.clone();
                Ok(Some(Effect::RotatingKeys(keys)))
            }
            (Work::RotatingKeys, Err(ClientError::Refused(errno))) => {
                self.wants_rotating_keys = false;
                Ok(Some(Effect::RotatingRefused { errno }))
            }
            (_, Err(_)) => Err(GiveUp),
        }
    }
}
