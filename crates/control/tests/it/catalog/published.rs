//! Publication to nodes.

use sluicegate_control::Scope;
use sluicegate_control::catalog::{NewToken, PolicyAt, PolicyState};

use crate::catalog::stage::{NOW, Stage, by, document};

pub(crate) async fn nodes_are_told_what_changed(stage: &Stage) {
    let catalog = &stage.catalog;
    let all = catalog.published_since(0, NOW).await.unwrap();
    assert_eq!((all.revision, all.policies.len(), all.tokens.len()), (0, 0, 0));
    stage.app("shop", &[]).await;
    for name in ["a", "b", "c"] {
        stage.policy("shop", name, "1/s").await;
    }
    let new = NewToken { name: "t", scopes: &[Scope::Check], expires_at: NOW + 10, hash: "h" };
    let token = catalog.create_token(&by(), "shop", new).await.unwrap();
    let all = catalog.published_since(0, NOW).await.unwrap();
    assert_eq!((all.revision, all.policies.len(), all.tokens.len()), (4, 3, 1));
    assert_eq!((all.tokens[0].hash.as_str(), all.tokens[0].app.as_str()), ("h", "shop"));
    // A node that starts after its end names the reason for a month.
    let ended = catalog.published_since(0, NOW + 10).await.unwrap();
    assert_eq!((ended.tokens.len(), ended.tokens[0].expires_at), (1, NOW + 10));
    let month = 30 * 24 * 60 * 60 * 1_000;
    assert!(catalog.published_since(0, NOW + 10 + month).await.unwrap().tokens.is_empty());

    catalog
        .change_policy(&by(), &PolicyAt::new("shop", "b", 1), &document("b", "2/s"))
        .await
        .unwrap();
    catalog.delete_policy(&by(), &PolicyAt::new("shop", "c", 1)).await.unwrap();
    catalog.revoke_token(&by(), "shop", &token.id).await.unwrap();
    let news = catalog.published_since(all.revision, NOW).await.unwrap();
    let told: Vec<_> =
        news.policies.iter().map(|p| (p.name.as_str(), p.version, p.state)).collect();
    assert_eq!(told, [("b", 2, PolicyState::Active), ("c", 2, PolicyState::Deleted)]);
    assert!(news.tokens[0].is_revoked);
    let none = catalog.published_since(news.revision, NOW).await.unwrap();
    assert_eq!((none.policies.len(), none.tokens.len()), (0, 0));
    let anew = catalog.published_since(0, NOW).await.unwrap();
    assert_eq!((anew.policies.len(), anew.tokens.len()), (2, 0));
}
