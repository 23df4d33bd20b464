//! One question after the other, for tests that tell their own story: nothing else is asked meanwhile.

use crate::{Finished, World};
use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use nacre_objecter::Request;
use nacre_types::{ObjectLocator, OsdId, PgId};
use std::time::Duration;

impl World {
    /// What the monitor answers the first client's command, in JSON, within 30 s of the world's time.
    ///
    /// # Panics
    /// When there is no answer, or it is an error.
    pub fn command(&mut self, text: &str) -> String {
        let tid = self.order(0, |client| client.command(text));
        let mut answer = None;
        self.run_until(Duration::from_secs(30), |world| {
            for done in world.take_finished(0) {
                if let Finished::Command { tid: of, result: 0, data, .. } = done
                    && of == tid
                {
                    answer = Some(String::from_utf8_lossy(&data.to_bytes()).into_owned());
                }
            }
            answer.is_some()
        });
        answer.unwrap_or_else(|| panic!("no answer to {text}: {self:?}"))
    }

    /// The OSDs that serve the first PG of pool 1, by the monitor's map.
    ///
    /// # Panics
    /// When the monitor does not run.
    #[must_use]
    pub fn acting(&self) -> Vec<OsdId> {
        self.mon().expect("it runs").state().osd.map().pg_to_up_acting(PgId::new(1, 0)).acting
    }

    /// Whether all OSDs are up and all PGs active and clean, by the monitor.
    ///
    /// # Panics
    /// When the monitor does not run.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let mon = self.mon().expect("it runs");
        let map = mon.state().osd.map();
        let clean = pg_state::ACTIVE | pg_state::CLEAN;
        map.up_count() == self.osd_ids().len()
            && mon.state().stats.pgs.pgs(map).all(|(_, stat)| stat.state == clean)
    }

    /// What the first client's operation on an object of pool 1 gives within two minutes of the world's time.
    ///
    /// # Panics
    /// When there is no answer, or it is an error.
    pub fn op(&mut self, object: &str, op: SubOp) -> Vec<u8> {
        let answer = self.op_within(object, op, Duration::from_secs(120));
        answer.unwrap_or_else(|| panic!("no answer: {self:?} {:?}", self.client(0)))
    }

    /// The same, if it gives anything within `patience`.
    ///
    /// # Panics
    /// When it fails.
    pub fn op_within(&mut self, object: &str, op: SubOp, patience: Duration) -> Option<Vec<u8>> {
        let request = Request::new(ObjectLocator::in_pool(1), object.to_owned(), vec![op]);
        let tid = self.order(0, |client| client.submit(request));
        let mut answer = None;
        self.run_until(patience, |world| {
            for done in world.take_finished(0) {
                if let Finished::Op { tid: of, outcome: Ok(reply) } = done
                    && of == tid
                {
                    answer = Some(reply);
                }
            }
            answer.is_some()
        });
        let answer = answer?;
        assert_eq!(answer.result, 0, "{object}");
        Some(answer.ops[0].outdata.to_bytes().to_vec())
    }
}
