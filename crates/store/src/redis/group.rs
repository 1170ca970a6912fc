//! Several requests of one caller, waited for together: one list of replies, one timer, and a wake-up for
//! each packet of replies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::Value;
use tokio::sync::Notify;

use super::RedisError;

/// The replies to the requests of one caller.
#[derive(Debug)]
struct Group {
    replies: Mutex<GroupReplies>,
    /// Wakes the caller when there are new replies.
    more: Notify,
}

#[derive(Debug)]
struct GroupReplies {
    /// The replies that the caller has not read yet, with their places.
    new: Vec<(usize, GroupReply)>,
    /// The number of missing replies.
    missing: usize,
    /// The caller has given up the missing ones.
    is_closed: bool,
}

/// The outcome of one request.
#[derive(Debug)]
pub(super) enum GroupReply {
    /// The connection dropped the request.
    Dropped,
    /// The server replied, or there is an error instead.
    Here(Result<Value, RedisError>),
}

/// The caller of a group. When dropped, it gives up the missing replies.
#[derive(Debug)]
pub(super) struct GroupCaller(Arc<Group>);

/// The place of one request in a group. When dropped without a reply, the request counts as dropped.
#[derive(Debug)]
pub(super) struct GroupPlace {
    /// `None`: a reply was sent.
    group: Option<Arc<Group>>,
    place: usize,
}

impl GroupCaller {
    /// Returns a group of `count` requests, each with its place.
    pub(super) fn new(count: usize) -> (Self, impl Iterator<Item = GroupPlace>) {
        let replies = GroupReplies { new: Vec::new(), missing: count, is_closed: false };
        let group = Arc::new(Group { replies: Mutex::new(replies), more: Notify::new() });
        let places = Arc::clone(&group);
        let place = move |place| GroupPlace { group: Some(Arc::clone(&places)), place };
        (Self(group), (0..count).map(place))
    }

    /// Returns the outcomes of some requests, with their places, as soon as there are any; `None` once
    /// all have been returned.
    pub(super) async fn next(&self) -> Option<Vec<(usize, GroupReply)>> {
        loop {
            {
                let mut replies = self.0.lock();
                if !replies.new.is_empty() {
                    return Some(std::mem::take(&mut replies.new));
                }
                if replies.missing == 0 {
                    return None;
                }
            }
            self.0.more.notified().await;
        }
    }

    /// Gives up the missing replies. Returns the other outcomes, as far as they have not been returned
    /// yet.
    pub(super) fn close(&self) -> Vec<(usize, GroupReply)> {
        self.0.close()
    }
}

impl Drop for GroupCaller {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Group {
    fn close(&self) -> Vec<(usize, GroupReply)> {
        let mut replies = self.lock();
        replies.is_closed = true;
        std::mem::take(&mut replies.new)
    }

    /// Stores `reply` at `place`; returns it if the caller has given up.
    fn put(&self, place: usize, reply: GroupReply) -> Result<(), GroupReply> {
        let mut replies = self.lock();
        if replies.is_closed {
            return Err(reply);
        }
        replies.new.push((place, reply));
        replies.missing -= 1;
        drop(replies);
        self.more.notify_one();
        Ok(())
    }

    /// Returns the replies, also after a panic elsewhere: each is stored in one step.
    fn lock(&self) -> MutexGuard<'_, GroupReplies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupPlace {
    pub(super) fn is_closed(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.lock().is_closed)
    }

    /// Sends the reply; returns it if the caller has given up.
    pub(super) fn send(
        mut self,
        reply: Result<Value, RedisError>,
    ) -> Result<(), Result<Value, RedisError>> {
        let Some(group) = self.group.take() else { return Err(reply) };
        match group.put(self.place, GroupReply::Here(reply)) {
            Err(GroupReply::Here(reply)) => Err(reply),
            _ => Ok(()),
        }
    }
}

impl Drop for GroupPlace {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            // A caller that gave up does not read it any more.
            group.put(self.place, GroupReply::Dropped).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Places, and numbers that stand for replies.
    type New = Vec<(usize, Option<i64>)>;

    /// Returns the new outcomes; `None`: there are none.
    fn new(group: &GroupCaller) -> Option<Option<New>> {
        let number = |reply| match reply {
            GroupReply::Here(Ok(Value::Int(number))) => Some(number),
            _ => None,
        };
        match pin!(group.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => None,
            Poll::Ready(new) => {
                Some(new.map(|new| {
                    new.into_iter().map(|(place, reply)| (place, number(reply))).collect()
                }))
            }
        }
    }

    #[test]
    fn each_reply_is_there_at_once_and_the_end_comes_when_none_is_missing() {
        let (group, mut places) = GroupCaller::new(2);
        let (first, second) = (places.next().expect("two"), places.next().expect("two"));
        assert_eq!(new(&group), None);
        second.send(Ok(Value::Int(2))).expect("it is waited for");
        assert_eq!(new(&group), Some(Some(vec![(1, Some(2))])));
        assert_eq!(new(&group), None);
        drop(first);
        assert_eq!(new(&group), Some(Some(vec![(0, None)])), "it was let fall");
        assert_eq!(new(&group), Some(None));
    }

    #[test]
    fn what_comes_after_the_caller_has_given_up_is_returned() {
        let (group, mut places) = GroupCaller::new(1);
        let place = places.next().expect("one");
        assert!(!place.is_closed());
        drop(group);
        assert!(place.is_closed());
        assert_eq!(place.send(Ok(Value::Int(1))), Err(Ok(Value::Int(1))));
    }
}
