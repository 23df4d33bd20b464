//! Glue between a connection of the messenger and `nacre_auth` or `nacre_monc`: steps of a handshake become frames, and frames of a monitor
//! events for its client.

use nacre_auth::Step;
use nacre_denc::DecodeError;
use nacre_monc::LinkEvent;
use nacre_msg::Message;
use nacre_msgr::{Connection, Event, Fault};

/// What an event on the connection to a monitor is to the [`nacre_monc::MonClient`]; none if it is nothing.
///
/// # Errors
/// When the monitor sent a message that does not decode.
pub fn mon_link_event(event: Event) -> Result<Option<LinkEvent>, DecodeError> {
    Ok(Some(match event {
        Event::Hello { .. } => LinkEvent::Hello,
        Event::AuthReplyMore { payload } => LinkEvent::AuthMore { payload },
        Event::AuthDone { global_id, mode, payload } => LinkEvent::AuthDone { global_id, mode, payload },
        Event::AuthBad { result, methods, .. } => LinkEvent::AuthBad { result, methods },
        Event::Established(_) => LinkEvent::Established,
        Event::KeepaliveAck(_) => LinkEvent::KeepaliveAck,
        Event::Message(raw) => LinkEvent::Message { tid: raw.tid, message: Message::decode(raw)? },
        _ => return Ok(None),
    }))
}

/// Answers one authentication frame.
///
/// # Errors
/// The [`Fault`] that ended the connection.
pub fn answer_auth(connection: &mut Connection, step: Step) -> Result<(), Fault> {
    match step {
        Step::More(payload) => connection.auth_reply_more(&payload),
        Step::Done(done) => connection.auth_done(
            done.global_id,
            done.mode.code(),
            &done.payload,
            &done.session_key,
            &done.connection_secret,
        ),
        Step::Bad(refusal) => {
            connection.auth_bad(refusal.method, refusal.errno.negated(), &refusal.methods, &refusal.modes)
        }
    }
}
