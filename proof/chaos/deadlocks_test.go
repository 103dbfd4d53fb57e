package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

const mariadbDeadlock = `2026-01-02  3:04:05 31 [Note] InnoDB: Transactions deadlock detected, dumping detailed information.
2026-01-02  3:04:05 31 [Note] InnoDB: 
*** (1) TRANSACTION:

TRANSACTION 71, ACTIVE 0 sec starting index read
mysql tables in use 1, locked 1
LOCK WAIT 4 lock struct(s), heap size 1128, 2 row lock(s)
MariaDB thread id 31, OS thread handle 140, query id 225 localhost 127.0.0.1 app Updating
UPDATE common_process_log
SET state=1 WHERE id IN (1,2)
2026-01-02  3:04:05 31 [Note] InnoDB: *** WAITING FOR THIS LOCK TO BE GRANTED:

RECORD LOCKS space id 7 page no 3 n bits 8 index PRIMARY of table ` + "`chaos`.`common_process_log`" + `
2026-01-02  3:04:05 31 [Note] InnoDB: *** CONFLICTING WITH:

RECORD LOCKS space id 7 page no 3 n bits 8
*** (2) TRANSACTION:

TRANSACTION 72, ACTIVE 0 sec starting index read
MariaDB thread id 32, OS thread handle 141, query id 226 localhost 127.0.0.1 root Updating
UPDATE /* nemesis */ common_process_log SET batch_id=batch_id WHERE id=1
2026-01-02  3:04:05 31 [Note] InnoDB: *** WAITING FOR THIS LOCK TO BE GRANTED:

RECORD LOCKS space id 7
2026-01-02  3:04:05 31 [Note] InnoDB: *** WE ROLL BACK TRANSACTION (1)
2026-01-02  3:04:06 31 [Warning] Aborted connection 31 to db
`

const mysqlDeadlock = `2026-01-02T03:04:05.000001Z 31 [Note] [MY-012468] [InnoDB] Transactions deadlock detected, dumping detailed information.
2026-01-02T03:04:05.000001Z 31 [Note] [MY-012469] [InnoDB] *** (1) TRANSACTION:
TRANSACTION 71, ACTIVE 0 sec inserting
MySQL thread id 31, OS thread handle 140, query id 225 localhost 127.0.0.1 app update
INSERT INTO common_process_log VALUES (1)
2026-01-02T03:04:05.000001Z 31 [Note] [MY-012469] [InnoDB] *** (1) HOLDS THE LOCK(S):
RECORD LOCKS space id 7
2026-01-02T03:04:05.000001Z 31 [Note] [MY-012469] [InnoDB] *** (2) TRANSACTION:
TRANSACTION 72, ACTIVE 0 sec inserting
MySQL thread id 32, OS thread handle 141, query id 226 localhost 127.0.0.1 app update
DELETE FROM common_process_log
2026-01-02T03:04:05.000001Z 31 [Note] [MY-012469] [InnoDB] *** (2) WAITING FOR THIS LOCK TO BE GRANTED:
RECORD LOCKS space id 7
2026-01-02T03:04:05.000001Z 31 [Note] [MY-012469] [InnoDB] *** WE ROLL BACK TRANSACTION (2)
`

func TestDeadlocksNameTheirStatementsAndTheVictim(t *testing.T) {
	require.Equal(t, []*history.Deadlock{{
		Statements: []string{"UPDATE common_process_log SET state=1 WHERE id IN (1,2)", "UPDATE /* nemesis */ common_process_log SET batch_id=batch_id WHERE id=1"},
		Victim:     0,
	}, {
		Statements: []string{"INSERT INTO common_process_log VALUES (1)", "DELETE FROM common_process_log"},
		Victim:     1,
	}}, deadlocks("ready for connections\n"+mariadbDeadlock+mysqlDeadlock))
	require.Empty(t, deadlocks("ready for connections\n"))
}
