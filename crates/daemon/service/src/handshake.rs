//! The accepting side of a handshake: what the authenticator says goes out on the connection.

use nacre_auth::Step;
use nacre_msgr::{Connection, Fault};

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
