"""Each failure about which docs/spark.md makes a promise, and the tests that show it (`file::test`)."""

from __future__ import annotations

from typing import Final

FAILURES: Final = {
    "AvailableNow in several batches, with rate and lag": [
        "test_streaming.py::test_available_now_reads_batches_of_the_limit_that_the_partitions_share",
    ],
    "a restart, exactly where the query was": [
        "test_streaming.py::test_a_second_run_reads_only_what_came_since_also_from_partitions_that_are_new",
        "programs/test_restart.py::test_a_job_that_is_killed_continues_without_a_gap_or_a_repeat",
    ],
    "partitions and streams that are added while the query runs": [
        "test_streaming.py::test_a_running_query_follows_what_matches_its_pattern",
    ],
    "a stream that is created again": [
        "test_streaming.py::test_a_stream_created_anew_under_its_name_ends_the_query_unless_loss_is_allowed",
        "behaviour/test_lost_streams.py::test_a_frame_never_reads_another_stream_with_the_name",
    ],
    "a stream that is deleted": [
        "test_streaming.py::test_a_query_goes_on_without_a_deleted_stream_and_reads_a_new_one_from_its_start",
        "test_stream_reader.py::test_a_deleted_stream_ends_the_query_only_if_loss_is_not_allowed",
        "behaviour/test_lost_streams.py::test_a_frame_never_reads_another_stream_with_the_name",
    ],
    "a log that is truncated": [
        "behaviour/test_faults.py::test_a_log_that_was_cut_ends_a_query_unless_loss_is_allowed",
        "test_truncated_log.py::test_records_that_were_replaced_end_the_query_unless_loss_is_allowed",
    ],
    "records that were deleted before they were read": [
        "test_streaming.py::test_records_deleted_before_they_were_read_end_the_query_unless_loss_is_allowed",
        "test_batch.py::test_earliest_is_the_log_start_and_what_lies_below_is_lost_data",
    ],
    "the leader dies in the middle of a task": [
        "test_failures.py::test_the_leader_dies_in_the_middle_of_a_task",
    ],
    "an executor dies in the middle of a task": [
        "programs/test_standalone.py::test_an_executor_that_is_killed_in_a_task_costs_no_row",
        "test_failures.py::test_the_python_process_of_a_task_is_killed_in_the_middle",
    ],
    "a start behind the end": [
        "test_stream_reader.py::test_a_start_behind_the_end_is_a_sentence",
    ],
    "a small partition beside a large one under a limit": [
        "test_fair_shares.py::test_five_records_beside_ten_million_are_read_in_the_first_trigger",
        "test_streaming.py::test_a_small_partition_is_read_beside_a_large_one_under_a_limit",
    ],
    "AvailableNow with fewer records than the smallest micro-batch": [
        "test_streaming.py::test_available_now_ends_at_everything_though_it_is_less_than_the_smallest_batch",
    ],
    "a report while brokers are away": [
        "test_stream_reader.py::test_the_report_is_what_the_last_trigger_saw_and_asks_nobody",
        "behaviour/test_faults.py::test_a_query_outlives_brokers_that_are_away_between_micro_batches",
    ],
    "brokers that cannot be reached": [
        "behaviour/test_faults.py::test_brokers_that_are_not_there_are_named",
        "behaviour/test_faults.py::test_a_task_gives_up_when_no_broker_answers_for_its_time",
    ],
}
