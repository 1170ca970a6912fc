//! Several requests of one caller, waited for together: one list of replies, one wake-up, one timer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::Value;
use tokio::sync::Notify;

use super::RedisError;

/// The replies to the requests of one caller.
#[derive(Debug)]
struct Group {
    replies: Mutex<Replies>,
    /// Whether the caller has given up what is not there.
    is_closed: AtomicBool,
    complete: Notify,
}

#[derive(Debug)]
struct Replies {
    of: Vec<GroupReply>,
    /// How many are waited for.
    missing: usize,
}

/// What became of one request.
#[derive(Debug)]
pub(super) enum GroupReply {
    /// It is waited for.
    Missing,
    /// Its connection let it fall.
    Dropped,
    /// The server replied, or it is known why it did not.
    Here(Result<Value, RedisError>),
}

/// The caller of a group. Dropped, it has given up what is not there.
#[derive(Debug)]
pub(super) struct GroupCaller(Arc<Group>);

/// The place of one request in a group. Dropped without a reply, the request was let fall.
#[derive(Debug)]
pub(super) struct GroupPlace {
    /// `None`: a reply was given.
    group: Option<Arc<Group>>,
    place: usize,
}

impl GroupCaller {
    /// A group of `count` requests, each with its place.
    pub(super) fn new(count: usize) -> (Self, impl Iterator<Item = GroupPlace>) {
        let of = std::iter::repeat_with(|| GroupReply::Missing).take(count).collect();
        let group = Arc::new(Group {
            replies: Mutex::new(Replies { of, missing: count }),
            is_closed: AtomicBool::new(false),
            complete: Notify::new(),
        });
        let places = Arc::clone(&group);
        let place = move |place| GroupPlace { group: Some(Arc::clone(&places)), place };
        (Self(group), (0..count).map(place))
    }

    /// Returns once no reply is missing.
    pub(super) async fn complete(&self) {
        while self.0.lock().missing > 0 {
            self.0.complete.notified().await;
        }
    }

    /// What has become of each request. Replies that come later are returned to the connection.
    pub(super) fn close(&self) -> Vec<GroupReply> {
        self.0.close()
    }
}

impl Drop for GroupCaller {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Group {
    fn close(&self) -> Vec<GroupReply> {
        self.is_closed.store(true, Ordering::Release);
        std::mem::take(&mut self.lock().of)
    }

    /// Puts `reply` down at `place`; returns it if the caller has given up.
    fn put(&self, place: usize, reply: GroupReply) -> Result<(), GroupReply> {
        let mut replies = self.lock();
        let Some(own) = replies.of.get_mut(place) else { return Err(reply) };
        *own = reply;
        replies.missing -= 1;
        if replies.missing == 0 {
            self.complete.notify_one();
        }
        Ok(())
    }

    /// The replies, also after a panic elsewhere: each is put down in one step.
    fn lock(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupPlace {
    pub(super) fn is_closed(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.is_closed.load(Ordering::Acquire))
    }

    /// Gives the reply; returns it if the caller has given up.
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
            // A caller that gave up does not look any more.
            group.put(self.place, GroupReply::Dropped).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_complete(group: &GroupCaller) -> bool {
        pin!(group.complete()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_group_is_complete_once_each_request_has_a_reply_or_was_let_fall() {
        let (group, mut places) = GroupCaller::new(2);
        let (first, second) = (places.next().expect("two"), places.next().expect("two"));
        second.send(Ok(Value::Int(2))).expect("it is waited for");
        assert!(!is_complete(&group));
        drop(first);
        assert!(is_complete(&group));
        let replies = group.close();
        assert!(matches!(replies[0], GroupReply::Dropped), "{replies:?}");
        assert!(matches!(replies[1], GroupReply::Here(Ok(Value::Int(2)))), "{replies:?}");
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
