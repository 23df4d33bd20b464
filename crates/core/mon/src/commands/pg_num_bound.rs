//! What `pg_num_min` and `pg_num_max` of a pool may be.

use super::call::{Failure, fail};
use nacre_maps::{POOL_PGS_MAX, Pool};
use nacre_mgr::autoscaler::pg_num_bounds;
use nacre_types::Errno;

/// Whether a pool may have this as `pg_num_min` or `pg_num_max`; 0 is none. Unlike Ceph, the pool need not keep to it yet: the autoscaler
/// sees to it.
pub(super) fn check_pg_num_bound(pool: &Pool, var: &str, wanted: i64) -> Result<(), Failure> {
    let (least, most) = pg_num_bounds(pool);
    let in_order = match var {
        "pg_num_min" => most.is_none_or(|most| wanted <= most.into()),
        "pg_num_max" => wanted == 0 || least.is_none_or(|least| wanted >= least.into()),
        _ => return Ok(()),
    };
    if !(0..=POOL_PGS_MAX.into()).contains(&wanted) {
        return fail(Errno::EINVAL, format!("{var} is 0 to {}", POOL_PGS_MAX));
    }
    if !in_order {
        return fail(Errno::EINVAL, format!("pg_num_min cannot be more than pg_num_max: {var} {wanted}"));
    }
    Ok(())
}
