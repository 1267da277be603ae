//! Generic netlink: finds families by name.

use crate::{
    Error,
    netlink_channel::{Answer, Channel},
    netlink_message::Attrs,
};

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

/// The length of a message before its attributes: command, version, two reserved bytes.
pub(crate) const HEADER_BYTES: usize = 4;

/// A family, as the kernel describes it.
#[derive(Debug)]
pub(crate) struct Family(Answer);

impl Family {
    /// Looks a family up; `None` if the kernel does not have it.
    pub fn find(channel: &mut Channel, name: &str, request: &'static str) -> Result<Option<Self>, Error> {
        let found = channel.request(request, GENL_ID_CTRL, &[CTRL_CMD_GETFAMILY, 1, 0, 0], |batch| {
            batch.put(CTRL_ATTR_FAMILY_NAME, &[name.as_bytes(), b"\0"].concat());
        });
        match found {
            Ok(answers) => Ok(answers.into_iter().next().map(Self)),
            Err(Error::Refused { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The number of the family, which is the kind of its messages.
    pub fn number(&self) -> Option<u16> {
        self.attrs().u16(CTRL_ATTR_FAMILY_ID)
    }

    /// The number of a multicast group of the family.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.attrs().nested(CTRL_ATTR_MCAST_GROUPS).into_iter().find_map(|(_, group)| {
            let group = Attrs::new(group);
            (group.text(CTRL_ATTR_MCAST_GRP_NAME)? == name).then(|| group.u32(CTRL_ATTR_MCAST_GRP_ID))?
        })
    }

    fn attrs(&self) -> Attrs<'_> {
        Attrs::after(&self.0.payload, HEADER_BYTES)
    }
}
