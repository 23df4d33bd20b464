//! Clients over this machine's sockets, by its clock and its entropy.

use crate::{Access, Client, Failure};
use nacre_env::real::RealNet;
use nacre_env::{Clock, RealClock, SystemEntropy};
use nacre_service::Messenger;
use std::io;
use std::time::Duration;

/// The longest turn of waiting for a map.
const TURN_MAX: Duration = Duration::from_millis(50);

impl Client {
    /// A client of this machine that goes by `clock` and has begun to look for a monitor.
    ///
    /// # Errors
    /// What the system says when it has no descriptors left for sockets.
    pub fn of_this_machine(access: Access, clock: RealClock) -> io::Result<Self> {
        let messenger = Messenger::new(Box::new(RealNet::new()?), clock.wall().sec.into());
        let mut client = Self::new(access, Box::new(clock), Box::new(SystemEntropy::default()), messenger);
        client.begin();
        Ok(client)
    }

    /// Waits until a monitor has given the map of the OSDs. False where none has within `patience`.
    ///
    /// # Errors
    /// Why this client cannot go on.
    pub fn wait_for_map(&mut self, clock: &RealClock, patience: Duration) -> Result<bool, Failure> {
        let until = clock.now() + patience;
        while self.objecter().map().epoch == 0 {
            if clock.now() > until {
                return Ok(false);
            }
            self.turn(TURN_MAX)?;
        }
        Ok(true)
    }
}
