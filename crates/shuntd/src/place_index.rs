//! Finds flows of the table by something that they have in common, with little memory: for each flow a hash and its
//! place.

use shunt_bpf::{Entry, EntryIndex, Error, FlowTable, Key};
use std::{
    hash::{BuildHasher, Hash, RandomState},
    iter,
};

/// The places of flows, by the hash of a property. Flows with other properties may have the same hash, and a flow may
/// have left its place: whoever reads the flow checks its property.
#[derive(Debug)]
pub(crate) struct PlaceIndex {
    hasher: RandomState,
    /// Sorted.
    places: Vec<(u32, EntryIndex)>,
}

impl PlaceIndex {
    /// Reads the whole table. Leaves out the flows without the property.
    pub(crate) fn new<P: Hash>(
        table: &FlowTable,
        property: impl Fn(&Key, &Entry) -> Option<P>,
    ) -> Result<Self, Error> {
        let mut index = Self { hasher: RandomState::new(), places: Vec::new() };
        table.for_each_place(|place, key, entry| {
            if let Some(property) = property(&key, &entry) {
                index.places.push((index.hash(&property), place));
            }
        })?;
        index.places.sort_unstable();
        Ok(index)
    }

    fn hash(&self, property: &impl Hash) -> u32 {
        self.hasher.hash_one(property) as u32
    }

    /// The places of the flows that may have this property.
    pub(crate) fn find<'a, P: Hash>(&'a self, property: &P) -> impl Iterator<Item = EntryIndex> + use<'a, P> {
        let hash = self.hash(property);
        let from = self.places.partition_point(|(other, _)| *other < hash);
        self.places[from..].iter().take_while(move |(other, _)| *other == hash).map(|(_, place)| *place)
    }

    /// All places, in groups: flows with the same property are in the same group.
    pub(crate) fn into_groups(self) -> impl Iterator<Item = Vec<EntryIndex>> {
        let mut at = 0;
        iter::from_fn(move || {
            let rest = &self.places[at..];
            let hash = rest.first()?.0;
            let group: Vec<EntryIndex> =
                rest.iter().take_while(|(other, _)| *other == hash).map(|(_, place)| *place).collect();
            at += group.len();
            Some(group)
        })
    }
}
