//! The contract as tests: one suite for every backend.
//!
//! A backend brings a [`Factory`]; [`run_all`] runs every case on a subject of its own, and `conformance_tests!` makes one
//! test of each. [`differential`] compares it with the reference on random histories. The page
//! `docs/storage-contract.md` is what they check.

pub mod bounds;
pub mod cancel;
pub mod checkpoints;
pub mod commit;
pub mod conversations;
pub mod definitions;
pub mod differential;
pub mod directory;
pub mod dispatch;
pub mod entries;
pub mod events;
pub mod executions;
pub mod families;
pub mod faults;
pub mod forks;
pub mod handoffs;
pub mod kinship;
pub mod leases;
pub mod limits;
pub mod lives;
pub mod load;
pub mod machines;
pub mod payloads;
pub mod persistence;
pub mod previews;
pub mod random;
pub mod retention;
pub mod retries;
pub mod rig;
pub mod schedules;
pub mod signals;
pub mod snapshot;
pub mod tasks;
pub mod tasks_inline;
pub mod timers;
pub mod unfenced;
pub mod unknown;
pub mod unserved;

use crate::clock::ManualClock;
use crate::id::{ExecutionId, OrgId};
use crate::storage::Storage;
use async_trait::async_trait;
use std::sync::Arc;

/// Makes fresh subjects.
#[async_trait]
pub trait Factory: Send + Sync {
    /// An empty backend on a clock of the test's own.
    async fn open(&self, clock: ManualClock) -> Subject;
}

/// Damages the stored hash of a checkpoint, or undoes the damage; says whether it is there.
pub type Corrupt = Box<dyn Fn(OrgId, ExecutionId, u32) -> bool + Send + Sync>;

/// A backend under test.
pub struct Subject {
    /// The backend.
    pub storage: Arc<dyn Storage>,
    /// Who keeps its house, where it does not itself: the store behind a server.
    pub keeper: Option<Arc<dyn Storage>>,
    /// How to damage it, where that can be done.
    pub corrupt: Option<Corrupt>,
    /// What has to live as long as the backend: a temporary directory.
    pub keep: Option<Box<dyn std::any::Any + Send + Sync>>,
}

/// Hands the names of all cases, by file, to a macro.
#[macro_export]
macro_rules! conformance_cases {
    ($with:path, $($extra:tt)*) => {
        $with! {
            ($($extra)*)
            executions {
                a_start_is_pending a_repeated_start_is_the_same_run a_delayed_start_waits strangers_are_not_found
                a_life_from_start_to_end an_end_absorbs pages_are_stable filters_narrow_a_listing
                parts_are_paged_too pause_and_resume a_divergence_is_decided unserved_work_is_told queues_are_counted workers_are_listed
                a_run_out_of_time_fails a_run_that_nobody_begins_fails an_empty_kind_is_refused
            }
            commit {
                commits_are_numbered a_commit_names_its_predecessor a_repeated_request_gets_its_answer
                a_last_request_gets_its_answer_too a_parked_run_is_taken_up_again
                a_stale_epoch_is_refused a_refused_batch_writes_nothing
                ops_are_read_back news_keep_a_run_going own_facts_are_no_news answers_carry_facts
                small_parts_of_a_batch orphans_give_back_what_they_took answers_tell_of_a_stop
                a_wait_is_for_what_it_names a_commit_may_be_too_large
            }
            limits {
                a_step_over_the_limit_pauses a_resume_gives_steps the_cumulative_limit_holds a_long_tail_pauses
                an_end_goes_before_a_limit a_checkpoint_at_the_limit_is_kept a_resume_may_bring_a_message
                a_resume_gives_a_budget_from_now_on
            }
            entries {
                a_tree_has_its_shape threads_do_not_move_the_main_leaf a_branch_crosses_forks
                an_unknown_leaf_is_not_found a_long_branch_is_whole
                a_branch_is_read_from_what_is_known a_branch_among_others_is_whole an_entry_may_repeat_an_output
            }
            checkpoints {
                recovery_starts_at_the_last a_tail_may_be_empty open_operations_refuse_a_checkpoint
                a_detached_task_survives timers_end_with_their_segment the_mailbox_survives once_results_survive
                an_unfinished_once_stays_in_the_tail a_damaged_one_is_passed_over
                without_a_good_one_the_run_is_quarantined
            }
            bounds {
                words_of_a_run_have_a_limit words_of_a_signal_have_a_limit words_of_an_op_have_a_limit a_worker_has_limits
            }
            definitions {
                a_definition_is_kept a_definition_has_a_form
            }
            directory {
                an_organization_has_a_name an_organization_changes_and_ends a_key_lives_and_ends a_narrow_key_is_removed_after_its_end what_is_done_is_kept
            }
            leases {
                a_run_has_one_holder claims_take_what_was_asked_for claims_have_an_order claims_are_exclusive
                a_lease_expires a_lease_is_cut a_late_holder_may_still_commit heartbeats_extend_and_tell a_released_run_is_pending
                many_losses_quarantine a_quarantined_run_has_one_more_chance a_worker_that_leaves_gives_all_back a_worker_belongs_to_its_org
                a_claim_has_the_run a_concurrency_key_has_one_runner a_concurrency_key_may_have_more_runners a_parked_run_does_not_share_its_key a_host_timer_ends_with_its_process a_plain_wait_outlives_its_process
            }
            dispatch {
                a_woken_run_is_left_to_its_worker a_claim_brings_a_parked_copy_its_news a_preference_may_be_given_up a_stop_is_for_its_worker_first
                a_backlog_of_another_org_delays_nobody kinds_take_turns a_queue_has_places a_queue_has_a_rate
            }
            tasks_inline {
                an_end_in_the_same_batch_is_one_event a_start_before_its_end a_retry_goes_to_the_queue an_inline_error_names_its_own_pause tries_in_place_are_one_attempt
                a_released_attempt_is_retried a_lost_attempt_is_restarted a_deadly_task_is_quarantined
                a_lost_at_most_once_is_in_doubt at_most_once_errors_are_final a_lost_reconcile_is_asked_about
                a_cancelled_attempt_ends_its_task an_end_cancels_open_tasks
            }
            tasks {
                a_task_is_run_by_a_worker claims_take_what_was_asked_for a_released_attempt_is_claimable a_lost_attempt_is_made_again lost_attempts_are_not_counted
                heartbeats_of_others_do_not_count many_losses_quarantine attempts_time_out silent_tasks_time_out
                deadlines_are_final a_doubt_ends_by_a_late_result a_doubt_ends_by_an_answer
                other_tasks_take_no_answer a_doubt_inside_a_once_is_answered reconcile_answers_doubts
                heartbeats_tell_of_a_stop heartbeats_tell_of_an_interruption an_interruption_ends_a_call_between_two_attempts progress_is_of_the_attempt_that_runs tasks_of_a_paused_run_run a_detached_task_ends_with_its_attempt a_detached_task_may_end_after_its_run open_tasks_have_a_limit
            }
            retries {
                retries_have_growing_pauses an_error_names_its_own_pause some_errors_are_not_retried
            }
            lives {
                a_task_says_how_many_lives_it_has a_deadly_inline_task_has_its_own_lives
            }
            signals {
                signals_are_kept_in_order a_signal_wakes_who_waits a_signal_is_consumed_once a_key_makes_one_signal
                a_signal_that_comes_back_is_free_at_once
                keys_belong_to_one_run others_take_signals_too concurrent_signals_all_arrive
                a_mailbox_may_be_full
            }
            timers {
                a_timer_is_never_early a_timer_fires_once timers_fire_in_order a_disarmed_timer_never_fires
                a_signal_wait_may_time_out timers_fire_whatever_the_status a_sleep_of_no_time
            }
            cancel {
                a_running_run_tidies_up a_stopping_run_may_complete a_waiting_run_is_claimed_to_tidy_up
                idle_runs_end_at_once a_hard_stop_is_at_once the_grace_ends a_stopping_run_changes_hands
                a_stopping_run_does_not_pause
            }
            events {
                numbers_are_gapless facts_share_numbers readers_continue_anywhere one_event_a_transition
                changes_are_announced
                ends_are_told one_look_tells_of_many_runs
            }
            forks {
                a_fork_at_a_checkpoint state_and_input_may_be_replaced a_fork_at_an_op what_is_in_flight_is_left_out
                what_was_seen_is_kept_in_its_order what_was_cancelled_later_is_open a_fork_keeps_what_its_parent_gives_back
                what_was_done_for_a_stop_is_left_out
                a_fork_at_an_entry forks_may_be_nested a_fork_of_nothing an_ended_run_may_be_forked
                a_repeated_fork_is_one impossible_forks_are_refused ended_detached_tasks_go_with_a_fork
            }
            payloads {
                every_size_is_read_back sources_are_read every_place_takes_large_payloads references_are_passed_on
                equal_content_is_one too_large_is_refused a_long_tail_stays_in_its_rows
            }
            retention {
                ended_runs_are_removed one_run_is_removed what_others_need_is_kept a_parent_outlives_its_children
                the_end_of_a_child_cannot_be_made_up what_nobody_started_is_not_kept
            }
            schedules {
                a_schedule_is_kept a_paused_schedule_rests each_tick_starts_one_run a_tick_that_cannot_start_is_passed_over
            }
            previews {
                rows_go_with_what_they_announce_and_with_their_readers rows_of_queued_tasks_need_no_holder
            }
            load {
                queues_are_counted
            }
            unserved {
                a_run_without_a_worker_is_told_once a_delayed_run_is_told_after_its_moment
                a_task_without_a_worker_is_told_once an_unknown_inline_task_wakes_its_run
            }
            machines {
                a_machine_is_let_in_and_revoked a_machine_has_a_name family_15_a_child_without_a_machine_is_told
            }
            unfenced {
                a_worker_is_enrolled what_waits_has_kinds a_worker_keeps_its_leases a_task_is_cancelled_from_outside
                a_mailbox_holds_what_nothing_took a_child_tells_its_parent ends_are_awaited_by_name
            }
            families {
                family_01_a_child_is_born_in_the_commit_of_its_parent family_01_children_have_a_limit family_02_an_end_is_told_with_it family_02_a_child_out_of_time_is_told
                family_03_what_a_child_tells_comes_in_order family_03_what_is_told_may_be_large family_04_a_message_is_a_signal_of_the_commit_that_sends_it
                family_04_a_message_that_is_not_delivered_is_told family_05_a_request_has_one_answer
                family_06_a_waiting_parent_holds_nothing family_07_a_detached_child_goes_on family_08_a_stranger_is_not_stopped family_08_a_child_is_stopped_alone family_08_a_stop_goes_down_the_tree family_09_budgets_hold_for_the_tree family_09_a_slice_is_taken_once family_09_the_end_of_a_root_is_booked
                family_09_what_a_draw_gets_is_told_again family_09_a_child_is_resumed_without_a_budget
                family_14_a_task_goes_to_the_workers_of_the_parent
            }
            conversations {
                family_10_a_child_goes_on_from_the_conversation_of_its_parent
                family_10_a_stopped_child_leaves_its_conversation family_10_a_value_is_given_to_a_child
            }
            persistence {
                family_13_a_journal_is_kept_once_it_has_to_be family_13_a_late_report_keeps_its_time
                family_13_a_lost_machine_fails_its_local_runs
            }
            handoffs {
                family_11_a_handoff_lets_go_of_everything family_11_an_end_goes_up_the_chain
                family_11_an_immediate_handoff_completes family_11_the_address_stays
                family_11_a_successor_speaks_for_the_run family_11_other_children_are_not_answered
                family_11_a_stop_reaches_who_has_the_work family_11_a_refused_handoff_leaves_the_run
                family_11_a_fork_keeps_no_handoff family_11_a_stream_goes_on_with_the_successor
            }
            kinship {
                family_09_usage_rolls_up a_family_is_listed_by_generation family_12_streams_multiplex
                family_12_a_stream_ends_with_its_run family_12_a_flood_delays_nobody family_12_a_cursor_is_of_its_family
            }
            unknown {
                one_lost_answer_changes_nothing many_lost_answers_change_nothing faults_can_be_healed
            }
        }
    };
}

/// Makes a test of every case: `conformance_tests!(MyFactory)`, where the argument is an expression of a [`Factory`].
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr) => {
        $crate::conformance_cases!($crate::conformance_test_modules, $factory);
    };
}

/// The modules that `conformance_tests!` makes.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test_modules {
    (($factory:expr) $($file:ident { $($case:ident)* })*) => {
        $(mod $file {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[tokio::test]
                async fn $case() {
                    $crate::storage::conformance::$file::$case(&$factory).await;
                }
            )*
        })*
    };
}

/// Runs every case, each on a fresh subject; panics where the contract is broken.
pub async fn run_all(factory: &dyn Factory) {
    macro_rules! run {
        (($factory:expr) $($file:ident { $($case:ident)* })*) => {
            $($( Box::pin($file::$case($factory)).await; )*)*
        };
    }
    conformance_cases!(run, factory);
}
