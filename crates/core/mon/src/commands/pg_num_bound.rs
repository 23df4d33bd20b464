//! What `pg_num_min` and `pg_num_max` of a pool may be.

use super::call::{Failure, fail};
use nacre_maps::{POOL_PGS_MAX, Pool};
use nacre_mgr::autoscaler::pg_num_bounds;
use nacre_types::Errno;

/// Whether a pool may have these as `pg_num_min` and `pg_num_max`; 0 is none. Unlike Ceph, it need not keep to them yet: the autoscaler
/// sees to it.
pub(super) fn check_pg_num_bounds(least: i64, most: i64) -> Result<(), Failure> {
    for (name, bound) in [("pg_num_min", least), ("pg_num_max", most)] {
        if !(0..=POOL_PGS_MAX.into()).contains(&bound) {
            return fail(Errno::EINVAL, format!("{name} is 0 to {POOL_PGS_MAX}"));
        }
    }
    if most > 0 && least > most {
        return fail(Errno::EINVAL, format!("pg_num_min {least} cannot be more than pg_num_max {most}"));
    }
    Ok(())
}

/// The same where the pool's other bound stays as it is.
pub(super) fn check_pg_num_bound(pool: &Pool, var: &str, wanted: i64) -> Result<(), Failure> {
    let (least, most) = pg_num_bounds(pool);
    let (least, most) = (least.unwrap_or(0).into(), most.unwrap_or(0).into());
    match var {
        "pg_num_min" => check_pg_num_bounds(wanted, most),
        "pg_num_max" => check_pg_num_bounds(least, wanted),
        _ => Ok(()),
    }
}
