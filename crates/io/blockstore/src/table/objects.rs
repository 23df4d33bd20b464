//! Objects by number: found, changed, removed.

use super::data::Target;
use super::space::Space;
use super::{Table, omap_size};
use crate::block_page;
use crate::kv_schema;
use crate::memtable::Memtable;
use crate::object_pages::{ObjectPages, Slots};
use crate::objects;
use crate::onode::Onode;
use crate::page::Page;
use nacre_types::{HObject, SpgId};
use std::sync::Arc;

impl Table {
    /// The object of this number.
    pub(crate) fn onode(&self, id: u64) -> Option<Arc<Onode>> {
        let (hits, misses) = &self.looked_up;
        if let Some(onode) = self.onodes.get(&id) {
            hits.set(hits.get() + 1);
            return onode.cloned();
        }
        let clean = self.clean.borrow_mut().onode(id);
        if clean.is_some() {
            hits.set(hits.get() + 1);
            return clean;
        }
        misses.set(misses.get() + 1);
        let onode = self.load_onode(id)?;
        self.clean.borrow_mut().keep_onode(id, Arc::clone(&onode));
        Some(onode)
    }

    /// As [`Table::onode`], leaving no trace in memory.
    pub(crate) fn load_onode(&self, id: u64) -> Option<Arc<Onode>> {
        if let Some(onode) = self.onodes.get(&id) {
            return onode.cloned();
        }
        let found = self.note(objects::read(self.kv.as_ref(), id, self.space.alloc.area()))?;
        if found.is_none() {
            self.failure.note(&format_args!("object {id} has a name and is not there"));
        }
        found.map(Arc::new)
    }

    /// Pages of an object that are not with it.
    pub(crate) fn pages_of(&self, id: u64) -> ObjectPages<'_> {
        ObjectPages {
            object: id,
            kv: self.kv.as_ref(),
            clean: &self.clean,
            looked_up: &self.looked_up,
            failure: &self.failure,
            area: self.space.alloc.area(),
        }
    }

    /// The same beside what changes.
    fn parts(&mut self, id: u64) -> (&mut Memtable<u64, Arc<Onode>>, &mut Space, ObjectPages<'_>) {
        let Self { onodes, space, kv, clean, looked_up, failure, .. } = self;
        let (kv, area) = (&**kv, space.alloc.area());
        (onodes, space, ObjectPages { object: id, kv, clean, looked_up, failure, area })
    }

    /// Slots of an object from `first` to `last`.
    pub(crate) fn slots(&self, onode: &Onode, first: u32, last: u32) -> Slots {
        self.pages_of(onode.id).range(&onode.blocks, first, last)
    }

    pub(crate) fn object(&self, at: &SpgId, name: &HObject) -> Option<Arc<Onode>> {
        self.onode(self.id(at, name)?)
    }

    /// A checkpoint has written the object: it may be evicted from now on.
    pub(crate) fn keep_clean(&mut self, id: u64, onode: Arc<Onode>) {
        self.clean.borrow_mut().keep_onode(id, onode);
    }

    /// The same of pages of its blocks.
    pub(crate) fn keep_pages(&mut self, id: u64, pages: Vec<(u32, Arc<Page>)>) {
        let mut clean = self.clean.borrow_mut();
        pages.into_iter().for_each(|(number, page)| clean.keep_page(id, number, page));
    }

    /// Number of the object, made if absent, ready to be changed.
    pub(super) fn touch(&mut self, at: SpgId, name: &HObject) -> u64 {
        let id = self.number(at, name);
        self.make_live(id);
        id
    }

    /// Number of the object, made if absent.
    pub(super) fn number(&mut self, at: SpgId, name: &HObject) -> u64 {
        if let Some(id) = self.id(&at, name) {
            return id;
        }
        let id = self.fresh_id();
        self.set_name(at, name, id);
        self.onodes.put(id, Arc::new(Onode { id, ..Onode::default() }));
        self.objects += 1;
        id
    }

    pub(super) fn make_live(&mut self, id: u64) {
        if self.onodes.is_mutable(&id) {
            return;
        }
        let clean = self.clean.borrow_mut().take_onode(id);
        let is_frozen = self.onodes.get(&id).is_some();
        let (hits, misses) = &self.looked_up;
        let looked_up = if is_frozen || clean.is_some() { hits } else { misses };
        looked_up.set(looked_up.get() + 1);
        let onode = clean.filter(|_| !is_frozen).or_else(|| self.load_onode(id));
        if let Some(onode) = onode {
            self.onodes.put(id, onode);
        }
    }

    /// Runs `change` on the object, made if absent.
    pub(super) fn change<R>(
        &mut self,
        at: SpgId,
        name: &HObject,
        change: impl FnOnce(Target<'_>) -> R,
    ) -> Option<R> {
        let id = self.number(at, name);
        let mut change = Some(change);
        let mut run = |table: &mut Self| {
            let (onodes, space, pages) = table.parts(id);
            onodes.change(&id, |onode| {
                let onode = Arc::make_mut(onode);
                onode.pool = at.pg.pool;
                change.take().map(|change| change((onode, space, &pages)))
            })?
        };
        // Mostly it is: to look first would be to look twice.
        run(self).or_else(|| {
            self.make_live(id);
            run(self)
        })
    }

    pub(crate) fn remove(&mut self, at: SpgId, name: &HObject) {
        let Some(space) = self.keyspace_of(&at) else { return };
        let recent = self.recent.borrow().find(&at, name);
        // It is not to take another one's place among those that are asked for.
        let Some(id) = recent.or_else(|| self.id_at(&kv_schema::name_key(&space, name))) else { return };
        self.delete_name(at, name);
        self.drop_object(id);
    }

    /// The object has no name any more. Gives the number of its blocks.
    pub(super) fn drop_object(&mut self, id: u64) -> usize {
        let Some(onode) = self.onode(id) else { return 0 };
        let blocks = self.drop_blocks(&onode);
        self.omap_bytes -= omap_size(&onode);
        self.objects -= 1;
        self.bury_omap(onode.omap);
        self.clean.borrow_mut().forget_onode(id);
        if id >= self.first_unfrozen {
            self.onodes.forget(&id); // most of what is kept of a coded object until all have a write lives no longer than that
        } else {
            self.onodes.delete(id);
            if onode.blocks.may_have_records() {
                self.dead_prefixes.push(kv_schema::object_key(id));
            }
        }
        blocks
    }

    /// Drops all blocks of an object; gives their number.
    fn drop_blocks(&mut self, onode: &Onode) -> usize {
        let (_, space, pages) = self.parts(onode.id);
        let mut count = 0;
        pages.each_whole(&onode.blocks, |number, page| {
            page.iter(number).for_each(|(_, slot)| space.drop_slot(slot, false));
            page.blobs().iter().for_each(|blob| space.release_blob(blob));
            count += page.count();
        });
        pages.forget(&onode.blocks);
        count
    }

    /// What of the pages that are taken for clean is not as the KV store has it, or is with a changed object as well.
    pub(crate) fn wrong_clean_pages(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for ((id, number), page) in self.clean.borrow().pages() {
            let is_changed = |onode: &Arc<Onode>| onode.blocks.page(number).is_some();
            if self.onodes.get(&id).flatten().is_some_and(is_changed) {
                wrong.push(format!("page {number} of object {id} is clean, and changed"));
            }
            let stored = self.note(self.kv.get(&kv_schema::page_key(id, number))).flatten();
            let stored = stored.and_then(|value| self.note(block_page::decode_page(&value, number)));
            let devices = |page: &Page| page.iter(0).map(|(at, slot)| (at, slot.place())).collect::<Vec<_>>();
            if stored.as_ref().map(devices) != Some(devices(&page)) || page.in_memory() > 0 {
                wrong.push(format!("page {number} of object {id} is not what is stored"));
            }
        }
        wrong
    }
}
