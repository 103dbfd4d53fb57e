package main

// relaying: entries to a broker.
func relaying() []mutant {
	return []mutant{
		{
			name: "relay-confirm-not-awaited", oracle: safety,
			what: "an entry succeeds as soon as its message is written to the connection",
			edits: []edit{
				{"relay/rabbitmq/send.go", "			l.awaitConfirm(ctx, ch, confirm)\n", ""},
				{"relay/rabbitmq/send.go", "confirms[i] == nil || !confirms[i].Acked() {", "confirms[i] == nil {"},
			},
			sees: relayTests("TestConfirmThatIsLostIsAskedForAgainUnderTheSameID", "TestFullQueueSpendsNoAttemptUnlessToldSo"),
		},
		{
			name: "relay-nack-is-success", oracle: safety,
			what: "a nack counts as a confirm",
			edits: []edit{
				{"relay/rabbitmq/send.go", "		return errNack\n", "		return nil\n"},
			},
			sees: relayTests("TestFullQueueSpendsNoAttemptUnlessToldSo"),
		},
		{
			name: "relay-return-ignored", oracle: safety,
			what: "a message that the broker has returned because no queue is bound for it counts as confirmed",
			edits: []edit{
				{"relay/rabbitmq/send.go", "; unroutable {", "; unroutable && false {"},
			},
			sees: relayTests("TestRefusedMessageWaitsForAPerson"),
		},
		{
			name: "relay-not-mandatory", oracle: safety,
			what: "messages are sent without asking for those back that no queue is bound for: the broker confirms and drops them",
			edits: []edit{
				{"relay/rabbitmq/send.go", "(m.exchange, m.key, m.mandatory, false,", "(m.exchange, m.key, false, false,"},
			},
			sees: relayTests("TestRefusedMessageWaitsForAPerson"),
		},
		{
			name: "relay-always-mandatory", oracle: safety,
			what: "a message is mandatory although its route says that the exchange routes it later: it is delivered, and compensated",
			edits: []edit{
				{"relay/rabbitmq/message.go", "mandatory: !to.NotMandatory,", "mandatory: true,"},
			},
			sees: relayTests("TestMessageForAnExchangeThatRoutesLaterIsNotTakenForUnroutable"),
		},
		{
			name: "relay-headers-beyond-the-frame", oracle: lateness,
			what: "headers that no frame of the connection has room for are sent: the broker ends it for everybody, again and again",
			edits: []edit{
				{"relay/rabbitmq/message.go", "|| size <= limit {", "|| size <= 2*limit {"},
			},
			sees: relayTests("TestHeadersFillAFrameToTheLastByteAndNoMore"),
		},
		{
			name: "relay-transient", oracle: safety,
			what: "messages are not persistent: a broker that restarts has lost what it confirmed",
			edits: []edit{
				{"relay/rabbitmq/message.go", "amqp091.Persistent", "amqp091.Transient"},
			},
			sees: relayTests("TestMessageIsItsEntry"),
		},
		{
			name: "relay-new-id-each-attempt", oracle: duplicates,
			what: "each attempt sends its message under an id of its own: consumers cannot tell that they have it",
			edits: []edit{
				{"relay/rabbitmq/message.go", "MessageId: messageID(e),", "MessageId: fmt.Sprint(messageID(e), \"-\", e.Version),"},
			},
			sees: relayTests("TestConfirmThatIsLostIsAskedForAgainUnderTheSameID"),
		},
		{
			name: "relay-id-of-the-requeue", oracle: duplicates,
			what: "a requeued entry is sent under another message id",
			edits: []edit{
				{"relay/rabbitmq/message.go", "MessageId: messageID(e),", "MessageId: fmt.Sprint(messageID(e), map[bool]string{true: \"-again\"}[e.Epoch > 0]),"},
			},
			sees: relayTests("TestMessageIsItsEntry"),
		},
		{
			name: "relay-id-cut", oracle: safety,
			what: "of an idempotent id that AMQP has no room for only the beginning is the message's id: another entry may have it, too",
			edits: []edit{
				{"relay/rabbitmq/message.go", "	sum := sha256.Sum256([]byte(e.IdempotentID))\n	return \"sha256:\" + hex.EncodeToString(sum[:])\n", "	_, _ = sha256.Sum256, hex.EncodeToString\n	return string(e.IdempotentID[:maxShort])\n"},
			},
			sees: relayTests("TestLongIdempotentIDBecomesAHashedMessageID"),
		},
		{
			name: "relay-one-confirm-for-all", oracle: safety,
			what: "the confirm of a batch's first message speaks for all of them",
			edits: []edit{
				{"relay/rabbitmq/send.go", "confirms[i] == nil || !confirms[i].Acked() {", "confirms[0] == nil || !confirms[0].Acked() {"},
			},
			sees: relayTests("TestEachMessageOfABatchHasAConfirmOfItsOwn"),
		},
		{
			name: "relay-outcomes-misplaced", oracle: safety,
			what: "where some of a batch are refused before they are sent, the outcomes of the others go to the wrong entries",
			edits: []edit{
				{"relay/rabbitmq/handler.go", "			outcomes[places[n]] = outcome\n", "			outcomes[n] = outcome\n"},
			},
			sees: relayTests("TestRefusedMessageWaitsForAPerson/batch"),
		},
		{
			name: "relay-batch-blamed", oracle: safety,
			what: "when one message closes the channel, all of its batch are refused",
			edits: []edit{
				{"relay/rabbitmq/send.go", "undecided && len(messages) > 1 {", "undecided && len(messages) < 1 {"},
			},
			sees: relayTests("TestRefusedMessageWaitsForAPerson/batch"),
		},
		{
			name: "relay-refusal-retried", oracle: lateness,
			what: "what the broker will never take is tried again for ever, and no person hears of it",
			edits: []edit{
				{"relay/rabbitmq/send.go", "errors.As(verdict, &undecided) && refuses(", "errors.As(verdict, &undecided) && !refuses("},
			},
			sees: relayTests("TestRefusedMessageWaitsForAPerson", "TestExchangeDeletedMeanwhileIsNamedAndItsEntriesCanBeRequeued"),
		},
		{
			name: "relay-outage-counts", oracle: safety,
			what: "a broker that is away spends attempts of the entries",
			edits: []edit{
				{"relay/rabbitmq/send.go", "	case p.cfg.CountUnavailable:\n", "	case true:\n"},
			},
			sees: relayTests("TestConnectionCutBeforeThePublishLosesNothing", "TestFullQueueSpendsNoAttemptUnlessToldSo"),
		},
		{
			name: "relay-handler-waits-for-the-broker", oracle: lateness,
			what: "a handler waits for its confirm longer than its time: a silent broker keeps all slots",
			edits: []edit{
				{"relay/rabbitmq/send.go", "	case <-ctx.Done():\n		return all(messages, fmt.Errorf(\"rabbitmq: no confirm", "	case <-make(chan struct{}):\n		return all(messages, fmt.Errorf(\"rabbitmq: no confirm"},
			},
			sees: relayTests("TestSilentBrokerKeepsNoHandler"),
		},
		{
			name: "relay-channel-kept-for-ever", oracle: leak,
			what: "a confirm that never comes keeps its channel for as long as the connection stands",
			edits: []edit{
				{"relay/rabbitmq/send.go", "time.NewTimer(confirmPatience)", "time.NewTimer(1000 * confirmPatience)"},
			},
			sees: relayTests("TestConfirmThatNeverComesKeepsItsChannelForAWhileOnly"),
		},
		{
			name: "relay-nack-of-the-unwritten", oracle: lateness,
			what: "a connection that takes nothing is kept, and its messages pass for rejected by a full queue",
			edits: []edit{
				{"relay/rabbitmq/send.go", "			if !ch.IsClosed() { //", "			if false && !ch.IsClosed() { //"},
			},
			sees: relayTests("TestMessageThatCannotBeWrittenIsNotCalledRefusedByAFullQueue"),
		},
		{
			name: "relay-more-channels-than-allowed", oracle: safety,
			what: "a Publisher opens more channels than its broker allows: their messages fail",
			edits: []edit{
				{"relay/rabbitmq/line.go", "min(channels, int(l.Config.ChannelMax))", "min(channels, 2000)"},
			},
			sees: relayTests("TestBrokerOfFewChannelsIsGivenNoMoreThanThose"),
		},
		{
			name: "relay-blocked-not-waited-for", oracle: duplicates,
			what: "messages are written to a broker that has said that it reads none",
			edits: []edit{
				{"relay/rabbitmq/publisher.go", "			line.block(b.Active)\n", ""},
			},
			survives: relayTests("TestBlockedConnectionIsWaitedForAndNothingPilesUp"),
		},
	}
}

// consuming: what a queue's consumer cannot do, into the log.
func consuming() []mutant {
	return []mutant{
		{
			name: "consumer-acks-first", oracle: safety,
			what: "a message is acknowledged before its work is done, or its entry recorded",
			edits: []edit{
				{"relay/rabbitmq/session.go", "	if s.settled(ctx, raw, d) {\n		_ = raw.Ack(false) //", "	_ = raw.Ack(false)\n	if s.settled(ctx, raw, d) {\n		return //"},
			},
			sees: relayTests("TestMessageThatComesAgainGoesIntoTheLogOnce", "TestFunctionThatDoesNotReturnIsToldToAndNamed"),
		},
		{
			name: "consumer-auto-acks", oracle: safety,
			what: "the broker takes a message for done when it has sent it",
			edits: []edit{
				{"relay/rabbitmq/session.go", "(s.cfg.Queue, consumerTag, false,", "(s.cfg.Queue, consumerTag, true,"},
			},
			sees: relayTests("TestStoppedConsumerFinishesWhatItHasBegunAndLeavesTheRest", "TestFunctionThatDoesNotReturnIsToldToAndNamed"),
		},
		{
			name: "consumer-drops-the-refused", oracle: safety,
			what: "a failed message that the log does not take is acknowledged",
			edits: []edit{
				{"relay/rabbitmq/session.go", "		return s.setAside(ctx, raw, d, err)\n", "		return true\n"},
			},
			sees: relayTests("TestMessageTheLogRefusesIsSetAsideBeforeItIsAcknowledged", "TestMessageThatCannotBeSetAsideIsHeld"),
		},
		{
			name: "consumer-gives-back-the-refused", oracle: safety,
			what: "a message that cannot be set aside goes back to its queue each time, which drops it beyond its delivery limit",
			edits: []edit{
				{"relay/rabbitmq/refused.go", "	case <-timer.C:\n		return true\n", "	case <-timer.C:\n		_ = raw.Nack(false, true)\n"},
			},
			sees: relayTests("TestMessageThatCannotBeSetAsideIsHeld"),
		},
		{
			name: "consumer-sets-aside-unconfirmed", oracle: safety,
			what: "a message is acknowledged although the queue of refused messages did not take it",
			edits: []edit{
				{"relay/rabbitmq/refused.go", "	if !confirm.Wait() {\n", "	if !confirm.Wait() && false {\n"},
			},
			sees: relayTests("TestMessageThatCannotBeSetAsideIsHeld"),
		},
		{
			name: "consumer-sets-aside-nowhere", oracle: safety,
			what: "a message is acknowledged although there is no queue of refused messages",
			edits: []edit{
				{"relay/rabbitmq/refused.go", "	if err != nil || routed {\n", "	if err != nil || routed || true {\n"},
			},
			sees: relayTests("TestMessageTheLogRefusesIsSetAsideBeforeItIsAcknowledged"),
		},
		{
			name: "consumer-copies-cc", oracle: duplicates,
			what: "the copy of a refused message goes to the queues of its CC as well, its own among them",
			edits: []edit{
				{"relay/rabbitmq/refused.go", "range []string{\"CC\", \"BCC\",", "range []string{"},
			},
			sees: relayTests("TestCopyOfARefusedMessageGoesToItsQueueAlone"),
		},
		{
			name: "consumer-consumes-without-a-log", oracle: safety,
			what: "a consumer takes messages again and again while the database is away: each lost connection counts as a delivery",
			edits: []edit{
				{"relay/rabbitmq/session.go", "	if err := k.prove(ctx); err != nil {\n", "	if err := k.prove(ctx); err != nil && false {\n"},
			},
			sees: relayTests("TestMessagesStayInTheirQueueWhileTheLogIsAway"),
		},
		{
			name: "consumer-works-off-a-stream", oracle: safety,
			what: "a stream is consumed like a queue: what it had before is never worked on",
			edits: []edit{
				{"relay/rabbitmq/session.go", "	if first {\n", "	if false {\n"},
			},
			sees: relayTests("TestStreamIsRefusedAtTheStart"),
		},
		{
			name: "consumer-trusts-the-queue-of-a-name", oracle: safety,
			what: "a queue that was replaced by a stream is consumed on",
			edits: []edit{
				{"relay/rabbitmq/session.go", "marked && !s.kindKnown {", "marked && false {"},
			},
			sees: relayTests("TestQueueThatBecomesAStreamIsRefused"),
		},
		{
			name: "consumer-gives-up-the-log", oracle: lateness,
			what: "a failed message is held unrecorded after one try while the database is away",
			edits: []edit{
				{"relay/rabbitmq/session.go", "		if !pause(ctx, failures) {\n", "		if true {\n"},
			},
			sees: relayTests("TestMessageIsHeldUntilTheDatabaseIsBack"),
		},
		{
			name: "consumer-works-on-the-redelivered", oracle: duplicates,
			what: "a message that comes again is worked on at once: one that ends its process does so for ever, and one that is in the log is done twice",
			edits: []edit{
				{"relay/rabbitmq/session.go", "	if raw.Redelivered {\n", "	if false {\n"},
			},
			sees: relayTests("TestMessageThatComesAgainGoesIntoTheLogOnce"),
		},
		{
			name: "consumer-ids-run-together", oracle: safety,
			what: "type, queue and message id are joined as they are: names with a colon stand for others",
			edits: []edit{
				{"relay/rabbitmq/delivery.go", "if processlog.FitsIdempotentID(id) && !strings.Contains(businessType, \":\") && !strings.Contains(d.Queue, \":\") {", "if processlog.FitsIdempotentID(id) {"},
			},
			sees: relayTests("TestEachMessageHasAnIdempotentIDOfItsOwn"),
		},
		{
			name: "consumer-id-without-queue", oracle: safety,
			what: "messages of two queues that have one id have one entry",
			edits: []edit{
				{"relay/rabbitmq/delivery.go", "businessType + \":\" + d.Queue + \":\" + d.MessageID", "businessType + \":\" + d.MessageID"},
			},
			sees: relayTests("TestEachMessageHasAnIdempotentIDOfItsOwn"),
		},
		{
			name: "consumer-parked-is-worked-on", oracle: safety,
			what: "the log works on a message that waits for a person",
			edits: []edit{
				{"relay/rabbitmq/consumer.go", "d.Parked != \"\" && e.Epoch == 0 {", "d.Parked != \"\" && e.Epoch < 0 {"},
			},
			sees: relayTests("TestPoisonIsParkedWithItsContentAndBlocksNobody", "TestParkedByHandWaitsForAPerson"),
		},
		{
			name: "consumer-permanent-retried", oracle: duplicates,
			what: "what a function will never do is called again and again",
			edits: []edit{
				{"relay/rabbitmq/session.go", "		d.Parked = parkedFor(err)\n		return 0\n", "		return 0\n"},
			},
			sees: relayTests("TestPoisonIsParkedWithItsContentAndBlocksNobody"),
		},
		{
			name: "consumer-stop-is-a-failure", oracle: safety,
			what: "a function that was told to stop has failed; it is not recorded all the same, since its context has ended",
			edits: []edit{
				{"relay/rabbitmq/session.go", "	case s.works.Err() != nil:\n		return false //", "	case false:\n		return false //"},
			},
			survives: relayTests("TestFunctionThatDoesNotReturnIsToldToAndNamed"),
		},
		{
			name: "consumer-stop-leaves-functions", oracle: duplicates,
			what: "Run's end does not wait for its functions: what they do is not acknowledged",
			edits: []edit{
				{"relay/rabbitmq/session.go", "		s.working.Wait()\n", ""},
			},
			sees: relayTests("TestStoppedConsumerFinishesWhatItHasBegunAndLeavesTheRest"),
		},
		{
			name: "consumer-loss-untold", oracle: duplicates,
			what: "a function works on a message that is its consumer's no more",
			edits: []edit{
				{"relay/rabbitmq/session.go", "			s.lose(ErrDeliveryLost)\n", ""},
			},
			sees: relayTests("TestFunctionIsToldThatItsMessageIsLost"),
		},
		{
			name: "consumer-forgotten-unnoticed", oracle: lateness,
			what: "a consumer that the broker has forgotten waits for ever",
			edits: []edit{
				{"relay/rabbitmq/session.go", "	case queue.Consumers == 0:\n", "	case queue.Consumers < 0:\n"},
			},
			sees: relayTests("TestConsumerThatTheBrokerForgetsComesBack"),
		},
		{
			name: "consumer-waits-for-deliveries", oracle: lateness,
			what: "a lost connection is noticed by its deliveries alone, which do not end while an acknowledgement waits to be written",
			edits: []edit{
				{"relay/rabbitmq/session.go", "		case err := <-s.link.closed: // the deliveries", "		case err := <-make(chan *amqp091.Error): // the deliveries"},
			},
			sees: relayTests("TestConsumerComesBackFromABrokerThatReadsNothing"),
		},
		{
			name: "consumer-deaf-while-it-waits", oracle: lateness,
			what: "a lost connection is not noticed while a message of it waits for a function of an earlier one",
			edits: []edit{
				{"relay/rabbitmq/session.go", "	case err := <-s.link.closed:\n		return orClosed(err)\n	}\n	s.working", "	}\n	s.working"},
			},
			sees: relayTests("TestLossIsToldWhileAMessageWaitsForAFunctionOfAnEarlierConnection"),
		},
		{
			name: "consumer-hangs-up-before-the-last-word", oracle: duplicates,
			what: "the connection ends when functions are told to stop: what they do then comes again",
			edits: []edit{
				{"relay/rabbitmq/session.go", "	err := s.drain()\n	s.link.close()\n", "	s.link.close()\n	err := s.drain()\n"},
			},
			sees: relayTests("TestWhatIsDoneOnceItIsToldToStopIsAcknowledged"),
		},
		{
			name: "consumer-waits-for-a-silent-database", oracle: lateness,
			what: "a message is held for as long as one connection to the database is silent, although others answer",
			edits: []edit{
				{"relay/rabbitmq/consumer.go", "context.WithTimeout(ctx, k.cfg.RecordTimeout)\n	defer cancel()\n	options", "context.WithCancel(ctx)\n	defer cancel()\n	options"},
			},
			sees: relayTests("TestMessageIsRecordedBesideAConnectionThatFellSilent"),
		},
		{
			name: "consumer-headers-without-end", oracle: safety,
			what: "headers are kept to any depth: of what JSON does not read the entry can never be decoded, and waits for nobody",
			edits: []edit{
				{"relay/rabbitmq/delivery.go", "maxDepth = 100\n", "maxDepth = 100_000\n"},
			},
			sees: relayTests("TestHeadersKeepNoMessageOutOfTheLog"),
		},
		{
			name: "consumer-headers-swell", oracle: lateness,
			what: "headers are stored with six bytes for a <: the message has no room in an entry, and goes back to its queue again and again",
			edits: []edit{
				{"relay/rabbitmq/delivery.go", "encoder.SetEscapeHTML(false)", "encoder.SetEscapeHTML(true)"},
			},
			sees: relayTests("TestHeadersKeepNoMessageOutOfTheLog"),
		},
		{
			name: "consumer-cut-timestamps", oracle: lateness,
			what: "a message whose timestamp JSON lacks cannot be recorded",
			edits: []edit{
				{"relay/rabbitmq/delivery.go", " || year < 0 || year > 9999 {", " || year < 0 {"},
			},
			sees: relayTests("TestTimestampThatJSONLacksKeepsNoMessageOutOfTheLog"),
		},
	}
}

// routing: what a router's handler of watermill cannot do, into the log.
func routing() []mutant {
	return []mutant{
		{
			name: "router-gives-up-the-log", oracle: safety,
			what: "a message is nacked after one try while the database is away: a broker that counts drops it",
			edits: []edit{
				{"relay/watermill/consumer.go", "		if !pause(ctx, failures) {\n			return fmt.Errorf(", "		if true {\n			return fmt.Errorf("},
			},
			sees: routerTests("TestMessageIsHeldUntilTheLogIsBack"),
		},
		{
			name: "router-acks-the-refused", oracle: safety,
			what: "a message that the log refuses is acknowledged although nothing has taken it",
			edits: []edit{
				{"relay/watermill/consumer.go", "		if err == nil || errors.Is(err, ErrRefused) {\n			return err\n", "		if true {\n			return nil\n"},
			},
			sees: routerTests("TestMessageTheLogRefusesIsSetAsideBeforeItIsAcknowledged", "TestMessageTheLogRefusesIsHeldWhereNothingTakesIt"),
		},
		{
			name: "router-sets-aside-what-is-changed", oracle: safety,
			what: "a person gets a refused message as its function has left it",
			edits: []edit{
				{"relay/watermill/delivery.go", "Payload: bytes.Clone(msg.Payload)}", "Payload: msg.Payload}"},
			},
			sees: routerTests("TestMessageTheLogRefusesIsSetAsideBeforeItIsAcknowledged"),
		},
		{
			name: "router-works-off-a-stream", oracle: safety,
			what: "a stream's message is worked on, although it is never delivered again",
			edits: []edit{
				{"relay/watermill/consumer.go", "	case msg.Metadata.Get(offsetMetadata) != \"\" &&", "	case false &&"},
			},
			sees: routerTests("TestMessageOfAStreamIsRefused"),
		},
		{
			name: "router-deaf-to-quorum-queues", oracle: duplicates,
			what: "a message that a quorum queue delivers again is worked on at once",
			edits: []edit{
				{"relay/watermill/consumer.go", "err == nil && n > 0 {", "err == nil && n < 0 {"},
			},
			sees: routerTests("TestDeliveryCountsOfQuorumQueuesSayThatAMessageComesAgain"),
		},
	}
}
