"""Keys of artifacts are those that Prefect allows, and jobs whose names differ have keys that differ."""

from prefect.client.schemas.actions import ArtifactCreate

from overnight.tasks.artifacts import artifact_key


def test_two_jobs_share_no_key_and_a_plain_name_stands_in_it() -> None:
    names = ["daily-digits", "daily_digits", "daily-digits_", "a--b", "a__b", "a_-b", "a-_b"]
    keys = [artifact_key(name, "summary") for name in names]
    assert keys[0] == "daily-digits-summary"
    assert len(set(keys)) == len(names)
    for key in keys:
        assert ArtifactCreate(key=key).key == key  # Prefect refuses other characters
