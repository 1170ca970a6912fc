//! The guarantees that hold in every world.

use sluicegate_kernel::lease::Record;

use super::world::World;
use super::*;

impl World {
    /// Returns the guarantee that this world breaks, if any, by the name of the simulator's invariant.
    pub(super) fn wrong(&self, model: &Explored) -> Option<String> {
        let (now, most, small) = (self.now(), model.most, &model.small);
        if self.admitted > most {
            return Some(format!("FleetBound: {} of {most} µs are admitted", self.admitted));
        }
        let (used, held) = (self.used, self.store.leases.held() * PERMIT);
        // A clock that went back may have a record charged twice, when it lapses and by a late message.
        if !self.is_back && used + held > most {
            return Some(format!(
                "StoreWithinLimit: {used} µs are in use and {held} out, of {most}"
            ));
        }
        if used + held < self.admitted {
            return Some(format!(
                "GivenBackOnce: {used} µs in use and {held} out, of {}",
                self.admitted
            ));
        }
        let is_calm = held == 0 && self.under_way.is_empty();
        let charged_max = self.admitted + self.lapsed;
        if !small.flows && !small.goes_back && is_calm && used > charged_max {
            return Some(format!(
                "QuotaHolds: {used} µs are in use, and {charged_max} were admitted or lapsed"
            ));
        }
        self.sides.iter().find_map(|side| {
            let usable = u64::from(side.usable(now));
            (usable > self.record(side.session.holder).map_or(0, Record::permits)).then(|| {
                format!("LeasesAccountedFor: {usable} may be used of {:?}", self.store.leases)
            })
        })
    }
}
