//! Edits of the next epoch's CRUSH map.

use super::OsdMaps;
use super::hierarchy::{self, CrushPlace, LocationError};
use nacre_types::OsdId;

impl OsdMaps {
    /// Puts an OSD where `place` says, see [`hierarchy::create_or_move`]. True when that changes anything.
    ///
    /// # Errors
    /// [`LocationError`].
    pub fn create_or_move(
        &mut self,
        osd: OsdId,
        weight: u32,
        place: &CrushPlace,
    ) -> Result<bool, LocationError> {
        if hierarchy::is_at(&self.upcoming().crush, osd, place) {
            return Ok(false);
        }
        self.edit_crush(|crush| hierarchy::create_or_move(crush, osd, weight, place))
    }

    /// Gives an OSD a device class. True when that changes anything.
    ///
    /// # Errors
    /// [`LocationError`].
    pub fn set_device_class(&mut self, osd: OsdId, class: &str) -> Result<bool, LocationError> {
        if self.upcoming().crush.item_class_name(osd) == Some(class) {
            return Ok(false);
        }
        self.edit_crush(|crush| hierarchy::set_class(crush, osd, Some(class)).map(|()| true))
    }

    /// Edits the next epoch's CRUSH map on a copy, which is taken only when the edit succeeds.
    ///
    /// # Errors
    /// The edit's.
    pub fn edit_crush<T, E>(
        &mut self,
        edit: impl FnOnce(&mut nacre_crush::CrushMap) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut edited = nacre_crush::CrushMap::clone(&self.upcoming().crush);
        let outcome = edit(&mut edited)?;
        *self.change_crush() = edited;
        Ok(outcome)
    }
}
